"""A pytest plugin that switches one guard off: `pytest -p tests.guards.plugin`, with its name in a variable."""

import os

VARIABLE = "WATCHWORD_GUARD_OFF"

if name := os.environ.get(VARIABLE):
    from tests.guards.attestor_switches import ATTESTOR_SWITCHES
    from tests.guards.console_switches import CONSOLE_SWITCHES
    from tests.guards.key_switches import KEY_SWITCHES
    from tests.guards.life_switches import LIFE_SWITCHES
    from tests.guards.switches import SWITCHES

    known = SWITCHES | ATTESTOR_SWITCHES | KEY_SWITCHES | LIFE_SWITCHES | CONSOLE_SWITCHES
    known[name]()
