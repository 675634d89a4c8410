"""What a machine says of itself."""

from pathlib import Path

from watchword.schemas.requests import Claims
from watchword.streams.agent.claims import read_claims


def put(root: Path, name: str, content: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def no_name() -> str:
    raise OSError


def test_what_can_be_read_is_claimed(tmp_path: Path) -> None:
    """Operators narrow tokens by these."""
    put(tmp_path, "sys/class/dmi/id/product_uuid", b"4C4C4544-0042-4D10-8053-B4C04F4E3332\n")
    put(tmp_path, "sys/class/dmi/id/product_serial", b" S-1 \n")
    for name, address, kind in (
        ("eth1", b"02:00:00:00:00:0B\n", b"1\n"),
        ("eth0", b"02:00:00:00:00:0a\n", b"1\n"),
        ("ib0", b"80:00:02:08:fe:80:00:00\n", b"32\n"),
        ("eth2", b"00:00:00:00:00:00\n", b"1\n"),
    ):
        put(tmp_path, f"sys/class/net/{name}/address", address)
        put(tmp_path, f"sys/class/net/{name}/type", kind)
        (tmp_path / f"sys/class/net/{name}/device").mkdir()
    put(tmp_path, "sys/class/net/docker0/address", b"02:00:00:00:00:0c\n")
    put(tmp_path, "sys/class/net/docker0/type", b"1\n")

    claims = read_claims(tmp_path, hardware_key=lambda: "sha256:ab", hostname=lambda: "rack-7")

    assert claims == Claims(
        product_uuid="4C4C4544-0042-4D10-8053-B4C04F4E3332",
        serial="S-1",
        macs=("02:00:00:00:00:0a", "02:00:00:00:00:0b"),
        hardware_key="sha256:ab",
        hostname="rack-7",
    )
    assert Claims.read(claims.write()) == claims


def test_what_cannot_be_read_is_not_claimed(tmp_path: Path) -> None:
    """A container has none of these files, and joins all the same."""

    def broken() -> str:
        message = "no TPM"
        raise RuntimeError(message)

    assert read_claims(tmp_path, hardware_key=broken, hostname=no_name) == Claims()


def test_what_the_wire_does_not_take_is_not_claimed(tmp_path: Path) -> None:
    """Firmware strings hold anything; a claim must never be what fails a join."""
    put(tmp_path, "sys/class/dmi/id/product_uuid", b"\xff\xfe\n")
    put(tmp_path, "sys/class/dmi/id/product_serial", b"x" * 5000)
    put(tmp_path, "sys/class/net/eth0/address", b"y" * 100)
    put(tmp_path, "sys/class/net/eth0/type", b"1")
    (tmp_path / "sys/class/net/eth0/device").mkdir()

    assert read_claims(tmp_path, hostname=lambda: "a\0b") == Claims()


def test_this_machine_can_be_read() -> None:
    """Whatever it is that the tests run on."""
    claims = read_claims()

    assert Claims.read(claims.write()) == claims
