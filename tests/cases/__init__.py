"""Which test shows that a case of others does not happen here."""
