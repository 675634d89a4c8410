"""All settings of all processes. Nothing else reads the environment."""

from watchword.streams.settings.model import Settings
from watchword.streams.settings.reader import Loaded, load, shown
from watchword.streams.settings.sources import agent_state

__all__ = ["Loaded", "Settings", "agent_state", "load", "shown"]
