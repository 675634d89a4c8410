"""Admits a machine that shows the secret of the image that it was installed from."""
