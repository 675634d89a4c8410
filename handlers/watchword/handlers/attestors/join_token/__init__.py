"""Admits a machine that knows the secret of a token that was made for it."""
