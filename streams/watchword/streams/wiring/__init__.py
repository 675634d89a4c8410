"""The composition roots: the only modules that know who works with whom; one for each process."""
