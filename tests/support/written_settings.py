"""Settings as they are read from a file, with nothing else around."""

from pathlib import Path

from watchword.streams.settings import Settings, load


def settings_of(folder: Path, text: str) -> Settings:
    """Write the text into a file of the folder, and return what it says."""
    file = folder / "watchword.toml"
    file.write_text(text)
    return load(environment={"HOME": "/nonexistent"}, file=file).settings
