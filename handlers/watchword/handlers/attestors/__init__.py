"""The built-in attestors, one folder each; none knows another."""
