"""A fleet that does not exist: machines with real keys that join, renew and leave at a steady rate."""
