"""What is decided: the join core, the attestors, the crypto and the store. No Kafka, no HTTP, no environment."""
