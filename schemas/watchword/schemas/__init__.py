"""What is written down: every shape that leaves a process. No I/O and no decisions."""
