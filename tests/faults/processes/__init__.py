"""The deployment under test: real servers and real processes, started through the command line."""
