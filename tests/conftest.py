"""What every test may use."""

pytest_plugins = ["tests.support.kafka", "tests.support.postgres", "tests.support.skips"]
