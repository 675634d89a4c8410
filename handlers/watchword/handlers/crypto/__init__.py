"""Keys, seals, signatures and certificates. No clock and no I/O, but for the key files."""
