"""The test kit's fixtures."""

pytest_plugins = ["watchword.streams.dev.testkit"]
