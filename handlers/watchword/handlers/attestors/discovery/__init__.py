"""Admits ramdisks that a site's agent has seen boot from the network."""
