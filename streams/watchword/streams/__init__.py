"""What moves: every process, and everything that touches Kafka, HTTP, a terminal or the environment."""
