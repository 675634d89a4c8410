"""Possession of the key of a certificate from a trusted CA, or of our own that has expired."""
