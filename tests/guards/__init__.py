"""Each guard switched off in turn: it counts once its test was seen to fail without it."""
