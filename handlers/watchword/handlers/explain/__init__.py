"""Judging a stored request again, step by step, without issuing or writing anything (DESIGN, section 8)."""
