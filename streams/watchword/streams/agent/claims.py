"""What the machine says of itself, read from Linux; all of it is unproven and may only narrow.

What cannot be read (no permission, no such file, a virtual machine) is not claimed: a claim is never
a reason not to join. The same goes for a value that the wire does not take.
"""

import socket
from collections.abc import Callable
from pathlib import Path

from watchword.schemas.requests import Claims

_DMI = Path("sys/class/dmi/id")
_NET = Path("sys/class/net")
_MAX_BYTES = 4096
_MAX_MACS = 64
_ETHERNET = "1"
_NO_MAC = "00:00:00:00:00:00"
_BOUNDS = {"product_uuid": 64, "serial": 128, "hostname": 253, "hardware_key": 256}


def read_claims(
    root: Path = Path("/"),
    *,
    hardware_key: Callable[[], str | None] | None = None,
    hostname: Callable[[], str] = socket.gethostname,
) -> Claims:
    """Return what can be read under `root`; `hardware_key` asks whoever knows the TPM."""
    return Claims(
        product_uuid=_bounded("product_uuid", _text(root / _DMI / "product_uuid")),
        serial=_bounded("serial", _text(root / _DMI / "product_serial")),
        macs=_macs(root / _NET),
        hardware_key=_bounded("hardware_key", _asked(hardware_key)),
        hostname=_bounded("hostname", _asked(hostname)),
    )


def _macs(interfaces: Path) -> tuple[str, ...]:
    """Return the addresses of real interfaces (those with a device), in one spelling, sorted."""
    try:
        found = sorted(interfaces.iterdir())
    except OSError:
        return ()
    macs = {
        address.lower()
        for interface in found
        if (interface / "device").exists()
        and _text(interface / "type") == _ETHERNET
        and (address := _text(interface / "address")) not in (None, _NO_MAC)
        and len(address) <= len(_NO_MAC)
    }
    return tuple(sorted(macs)[:_MAX_MACS])


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
    except OSError:
        return None
    return content.decode("ascii", errors="ignore").strip() or None


def _asked(source: Callable[[], str | None] | None) -> str | None:
    if source is None:
        return None
    try:
        return source()
    except Exception:  # noqa: BLE001 - whatever a source raises: then it is not claimed
        return None


def _bounded(name: str, value: str | None) -> str | None:
    """Return the value if the wire takes it; a longer one is left out, since a cut one would be a lie."""
    if not value or len(value) > _BOUNDS[name] or not value.isprintable():
        return None
    return value
