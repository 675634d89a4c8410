"""`python -m watchword.streams.cli`: the same as `watchword`."""

from watchword.streams.cli.main import main

main()
