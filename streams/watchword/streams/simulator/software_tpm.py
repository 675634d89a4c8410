"""TPMs of simulated machines: a process of `swtpm` each, a few at a time, new ones with seeds of their own."""

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from watchword.handlers.attestors.tpm.names import ek_sha256
from watchword.handlers.attestors.tpm.prover import TpmProver
from watchword.handlers.attestors.tpm.structures import read_public_2b
from watchword.handlers.prover import NoEvidence, Prover
from watchword.streams.agent.tpm.chip import TssChip
from watchword.streams.dev.free_ports import free_ports

AT_ONCE = 4
"""How many TPMs are on at the same time; each is a process that computes."""

POLICY = {
    "pcrs": [0],
    "banks": ["sha256"],
    "log": "ignored",
    "values": {"sha256": {"0": ["00" * 32]}},
}
"""What these TPMs show: nothing has booted, so nothing was measured."""

_START_S = 30.0
_END_S = 10.0
_LOOK_S = 0.02


def missing() -> str | None:
    """Return what this computer lacks for TPMs, in words; None if it has all."""
    if shutil.which("swtpm") is None:
        return "the program swtpm"
    if find_spec("tpm2_pytss") is None:
        return "tpm2-pytss (the extra `tpm`)"
    return None


def proving(
    enrol: Callable[[bytes], Awaitable[None]] | None,
) -> Callable[[int], AbstractAsyncContextManager[Prover]]:
    """Return what gives a machine a new TPM for its join; `enrol` hears of its endorsement key beforehand."""
    places = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def with_tpm(_: int) -> AsyncGenerator[Prover]:
        async with places, _running() as tcti:
            chip = TssChip(tcti, "p256")
            if enrol is not None:
                await enrol(await asyncio.to_thread(_endorsement, chip))
            yield TpmProver(chip)

    return with_tpm


def _endorsement(chip: TssChip) -> bytes:
    """Return by what the TPM's endorsement key is enrolled."""
    with chip.opened() as session:
        return ek_sha256(read_public_2b(session.endorsement().area))


@asynccontextmanager
async def _running() -> AsyncGenerator[str]:
    """Give the address of a new TPM that is on.

    Raises:
        NoEvidence: it did not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="watchword-sim-tpm-"))
    port = two_ports()
    process = subprocess.Popen(  # noqa: ASYNC220, S603 - it returns at once; nothing of it is anybody else's
        switched_on(folder, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await _until_listening(port + 1, process)
        yield f"swtpm:host=127.0.0.1,port={port}"
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, _END_S)
        shutil.rmtree(folder, ignore_errors=True)


def switched_on(state: Path, port: int) -> list[str]:
    """Return the command of a TPM with this state at a port of 127.0.0.1; the one above it is its control channel."""
    return [
        shutil.which("swtpm") or "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={state}",
        "--server", f"type=tcp,port={port},bindaddr=127.0.0.1,disconnect",
        "--ctrl", f"type=tcp,port={port + 1},bindaddr=127.0.0.1",
        "--flags", "not-need-init,startup-clear", "--seccomp", "action=none",
    ]  # fmt: skip


def two_ports() -> int:
    """Return a port that is free, as is the one above it: the TSS takes that for the control channel."""
    while True:
        [port] = free_ports(1)
        with socket.socket() as above:
            try:
                above.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
        return port


async def _until_listening(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                message = "the software TPM does not listen"
                raise NoEvidence(message) from None
            await asyncio.sleep(_LOOK_S)
        else:
            writer.close()
            return
