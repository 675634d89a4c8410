"""`watchword sites create|list|delete`."""

from watchword.streams.cli.places import place_app

app = place_app("site")
