"""All settings of all processes. Nothing else reads the environment."""

from watchword.streams.settings.model import Settings
from watchword.streams.settings.reader import Loaded, load, shown

__all__ = ["Loaded", "Settings", "load", "shown"]
