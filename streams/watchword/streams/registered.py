"""What other packages register in a group of entry points: found by name, and imported only when it is asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from watchword.handlers.errors import ConfigRefused


@dataclass(frozen=True, slots=True)
class Registration:
    """One entry point of a group."""

    name: str
    """The attestor's id: what `attestors.enabled`, `--attestor` and machines say."""
    place: str
    """Module and attribute, such as `acme_asset:attestor`."""
    distribution: str | None
    version: str | None
    entry: EntryPoint
    also: tuple[str, ...] = ()
    """Other distributions that register the same name."""

    def load(self) -> object:
        """Import what is registered.

        Raises:
            ConfigRefused: several packages register the name, or it cannot be imported.
        """
        if self.also:
            others = ", ".join((self.distribution or self.place, *self.also))
            raise ConfigRefused([f"{self.name} is registered by several packages: {others}"])
        try:
            loaded: object = self.entry.load()
        except Exception as error:
            raise self.unusable(error) from error
        return loaded

    def unusable(self, error: Exception) -> ConfigRefused:
        """Return what to raise for something that its author's code has raised."""
        return ConfigRefused(
            [f"{self.name} ({self.place}) cannot be loaded: {type(error).__name__}: {error}"]
        )


def registered(
    group: str, installed: Iterable[EntryPoint] | None = None
) -> Mapping[str, Registration]:
    """Return what is registered in a group, by name; nothing of it is imported yet."""
    found: dict[str, Registration] = {}
    for entry in entry_points(group=group) if installed is None else installed:
        distribution = entry.dist
        one = Registration(
            entry.name,
            entry.value,
            None if distribution is None else distribution.name,
            None if distribution is None else distribution.version,
            entry,
        )
        if (first := found.get(entry.name)) is not None:
            other = one.distribution or one.place
            one = Registration(
                first.name,
                first.place,
                first.distribution,
                first.version,
                first.entry,
                (*first.also, other),
            )
        found[entry.name] = one
    return found
