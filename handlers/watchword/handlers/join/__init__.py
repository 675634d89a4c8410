"""Judging a join: the core decides, the store keeps, and neither knows the other's tools."""
