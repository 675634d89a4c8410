"""What every test may use."""

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.support.installed",
    "tests.support.kafka",
    "tests.support.postgres",
    "tests.support.skips",
]

# What an example takes says how busy the machine is, and nothing about what it shows.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
