"""The pages: one module each."""
