"""What joins cost and how fast they are: `make bench`."""
