"""Admits machines whose vendor has signed their asset tag together with their CSR."""
