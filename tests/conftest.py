"""What every test may use."""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.support.installed",
    "tests.support.kafka",
    "tests.support.postgres",
    "tests.support.skips",
]

# A runner in the background ignores SIGINT, and so would everything that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What an example takes says how busy the machine is, and nothing about what it shows.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
