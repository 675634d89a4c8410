"""The guards, gathered from the tables of their areas, in the order in which they are switched off."""

from tests.guards.guard import Guard
from tests.guards.join_guards import JOINS
from tests.guards.life_guards import LIFE
from tests.guards.process_guards import PROCESSES

GUARDS: tuple[Guard, ...] = (*JOINS, *LIFE, *PROCESSES)
