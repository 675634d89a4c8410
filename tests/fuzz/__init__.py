"""Verifiers under bytes that nobody made on purpose."""
