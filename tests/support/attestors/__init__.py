"""Attestors for tests."""
