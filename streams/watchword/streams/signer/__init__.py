"""The process that holds the CA key, and the worker's line to it."""
