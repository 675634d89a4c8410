"""The attestors of the suite, made findable for workers as an installed package's entry points are."""

from pathlib import Path

from watchword.streams.wiring.strangers import GROUP

_MODULE = "tests.faults.seams.attestors"
_PLUG_INS = {"two-rounds": "TwoRounds", "own-sql": "OwnSql"}

ATTESTORS = ("image", "discovery", *_PLUG_INS)
"""What workers are told to enable."""


def install(folder: Path) -> Path:
    """Write what importlib.metadata looks for; return the folder for the module search path."""
    installed = folder / "installed"
    information = installed / "faults_attestors-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: faults-attestors\nVersion: 1.0\n"
    )
    lines = [f"{name} = {_MODULE}:{kind}" for name, kind in _PLUG_INS.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    return installed
