"""Tables are a projection of the journal: the fold that says what every event did to them."""
