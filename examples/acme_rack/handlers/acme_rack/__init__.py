"""Admits machines that prove a key of their own, once a technician has released them."""
