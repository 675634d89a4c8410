"""Junk in masses, at gateways and straight on Kafka, and a fleet that boots at once."""

import asyncio
import base64
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.faults.fault import Fault, NotHit, Scale, until
from tests.faults.judge.ledger import JOINED, Flood
from tests.faults.load.booting import Loss
from tests.faults.load.envelope import Machine
from tests.faults.load.junk import Junk
from tests.faults.load.kinds import Send, as_send, join
from tests.faults.processes.child import Child
from tests.faults.processes.deployment import Deployment
from tests.faults.processes.flooder import flooded

_PROMISED_S = 5.0
_BEGUN_S = 1.5
_READABLE = 0.1
"""The share of junk at gateways that they have to let pass."""
_ANSWERED_S = 900.0
_BOOTED_S = 600.0
_AT_ONCE = 20
"""Requests that are made before others have their turn."""

_BODIES_BYTES = 64 << 20
"""What a gateway holds of bodies at most."""
_EACH_CONNECTION_BYTES = 96 << 10
"""A connection with its buffers, its request and its task."""
_ALLOCATOR_BYTES = 64 << 20
"""What was freed and has not been given back."""

_REJECTED = re.compile(
    r'^watchword_gateway_rejected_total\{reason="([a-z-]+)"\} (\S+)$', re.MULTILINE
)


async def at_gateways(deployment: Deployment, scale: Scale) -> int:
    """Pour every malformation onto gateways, with slow ones and idle ones, and join in between."""
    del scale
    load, sizes = deployment.load, deployment.layout.floods
    junk = Junk(load.supplies)
    readable = await _made(
        deployment, (junk.readable() for _ in range(int(sizes.junk * _READABLE)))
    )
    gateways = deployment.fleet.of("gateway")
    before, memory = await _rejected(deployment, gateways), _watched(gateways)
    joining = asyncio.create_task(_join_beside(deployment))
    try:
        told = await flooded(
            deployment.folder,
            "pour",
            [send.value for send in readable],
            ports=deployment.fleet.gateway_ports,
            junk=sizes.junk - len(readable),
            slow=sizes.slow,
            pollers=sizes.pollers,
            good=_texts(request.value for request in junk.good),
            bad_csr={
                reason: base64.b64encode(request.value).decode()
                for reason, request in junk.bad_csr.items()
            },
        )
        await joining
    finally:
        joining.cancel()
    after = await _rejected(deployment, gateways)
    grown = {child.name: _peak(child) - memory[child.name] for child in gateways}
    for nth, at in told["taken"]:
        deployment.ledger.acknowledge(readable[nth].asked.digest, at)
    deployment.ledger.floods.append(
        Flood(
            answers=told["answers"],
            expected={kind: frozenset(names) for kind, names in told["expected"].items()},
            counted=after - before,
            without_a_time=told["without_a_time"],
            grown_bytes=grown,
            most_bytes=_BODIES_BYTES
            + _ALLOCATOR_BYTES
            + _EACH_CONNECTION_BYTES * (sizes.pollers + sizes.slow),
        )
    )
    (deployment.folder / "flood-at-gateways.txt").write_text(
        f"{sizes.junk} pieces of junk in {told['seconds']:.1f} s, {sizes.valid} joins beside them\n"
        f"memory more: { {name: f'{more >> 20} MiB' for name, more in grown.items()} }\n"
        f"idle pollers: {told['polls']}\nanswers: {told['answers']}\n"
    )
    await _until_answered(deployment, readable)
    return sum(sum(found.values()) for found in told["answers"].values()) + len(readable)


async def _join_beside(deployment: Deployment) -> None:
    """Join through gateways, one machine after the other, without waiting for the one before.

    From a process of their own: this one makes the load, and would measure how late it is itself.
    """
    load, sizes = deployment.load, deployment.layout.floods
    made = await _made(
        deployment, (send for _ in range(sizes.valid) for send in join(load.supplies))
    )
    told = await flooded(
        deployment.folder,
        "boot",
        [send.value for send in made],
        ports=deployment.fleet.gateway_ports,
        machines=[(nth, nth, Loss.NEVER) for nth in range(len(made))],
        within_s=_ANSWERED_S,
        # The flood has to begin first; what comes before it would be answered as fast as ever.
        first_after_s=_BEGUN_S,
        every_s=sizes.valid_every_s,
    )
    for nth, _, at in told["taken"]:
        deployment.ledger.acknowledge(made[nth].asked.digest, at)
    answered = {nth: at for nth, _, at in told["answered"]}
    for nth, send in enumerate(made):
        if nth in answered:
            send.asked.felt_s = answered[nth] - told["begun"][nth]
        else:
            load.unanswered.append(send.asked.digest)


async def on_kafka(deployment: Deployment, scale: Scale) -> int:
    """Write junk straight to Kafka, as fast as it takes it; whoever asks meanwhile waits behind it."""
    del scale
    junk = Junk(deployment.load.supplies)
    sends = await _made(deployment, junk.many(deployment.layout.floods.junk))
    times = await flooded(
        deployment.folder,
        "produce",
        [send.value for send in sends],
        keys=_texts(send.key for send in sends),
        bootstrap_servers=deployment.kafka.bootstrap_servers,
    )
    for send, at in zip(sends, times, strict=True):
        deployment.ledger.acknowledge(send.asked.digest, at)
    await _until_answered(deployment, sends)
    return len(sends)


async def boot_storm(deployment: Deployment, scale: Scale) -> int:
    """Boot a fleet at once; half of it loses power on the way and returns, with the same request or another."""
    del scale
    load, rng = deployment.load, deployment.rng
    machines: list[tuple[Send, Send, Loss]] = []
    losses = [loss for loss in Loss if loss is not Loss.NEVER]
    for nth in range(deployment.layout.floods.agents):
        machine, token = Machine(), rng.choice(load.supplies.tokens.large)

        def asks(machine: Machine = machine, token: Any = token) -> Send:  # noqa: ANN401 - a token
            return as_send("boot", load.supplies.show(machine, token), {JOINED}, token=token)

        first = asks()
        loss = losses[nth // 2 % len(losses)] if nth % 2 else Loss.NEVER
        # Who had written its request down sends it again; who had not has only its key and its CSR.
        after = asks() if loss is not Loss.NEVER and rng.random() < 0.3 else first
        machines.append((first, after, loss))
        if nth % _AT_ONCE == 0:
            await asyncio.sleep(0)
    sends = [send for first, after, _ in machines for send in (first, after)]
    for send in sends:
        deployment.ledger.add(send.asked)
    deployment.ledger.booted |= {first.asked.csr_sha256 or b"" for first, _, _ in machines}
    told = await flooded(
        deployment.folder,
        "boot",
        [send.value for send in sends],
        ports=deployment.fleet.gateway_ports,
        machines=[(2 * n, 2 * n + 1, loss) for n, (_, _, loss) in enumerate(machines)],
        within_s=_BOOTED_S,
    )
    for nth, is_back, at in told["taken"]:
        first, after, _ = machines[nth]
        deployment.ledger.acknowledge((after if is_back else first).asked.digest, at)
    (deployment.folder / "boot-storm.txt").write_text(
        f"{len(machines)} machines; sent away: {told['shed']}; power lost: {told['lost']}; "
        f"connections lost: {told['connections_lost']}\n"
    )
    if told["without_a_time"]:
        message = f"{told['without_a_time']} machines were sent away without a time to come again"
        raise NotHit(message)
    if len(told["answered"]) < len(machines):
        message = f"{len(told['answered'])} of {len(machines)} machines have an answer"
        raise NotHit(message)
    shed = sum(count for name, count in told["shed"].items() if name.startswith("503"))
    if not shed:
        message = "no gateway had to send anybody away"
        raise NotHit(message)
    return len(machines)


async def _made(deployment: Deployment, sends: Iterable[Send]) -> list[Send]:
    """Make requests and write them down, without holding up the machines of the load."""
    made: list[Send] = []
    for send in sends:
        made.append(send)
        deployment.ledger.add(send.asked)
        if len(made) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return made


async def _until_answered(deployment: Deployment, sends: Sequence[Send]) -> None:
    del deployment

    async def all_are() -> bool:
        return all(send.asked.answered_at is not None for send in sends)

    await until(all_are, "the junk is answered", within_s=_ANSWERED_S, every_s=0.5)


def _texts(values: Iterable[bytes]) -> list[str]:
    return [base64.b64encode(value).decode() for value in values]


async def _rejected(deployment: Deployment, gateways: Sequence[Child]) -> Counter[str]:
    """Return how often gateways have answered with each problem."""
    found: Counter[str] = Counter()
    for child in gateways:
        page = await asyncio.to_thread(deployment.fleet.page, child)
        for name, count in _REJECTED.findall(page.decode()):
            found[name] += int(float(count))
    return found


def _watched(gateways: Iterable[Child]) -> dict[str, int]:
    """Have the kernel watch the greatest memory anew (proc(5), clear_refs); return what each has now."""
    now: dict[str, int] = {}
    for child in gateways:
        now[child.name] = _memory(child, "VmRSS")
        if child.process is not None:
            Path(f"/proc/{child.process.pid}/clear_refs").write_text("5")
    return now


def _peak(child: Child) -> int:
    return _memory(child, "VmHWM")


def _memory(child: Child, field: str) -> int:
    """Return a figure of a process in bytes; raises `NotHit` if it has ended."""
    if child.process is None:
        message = f"{child.name} is not there"
        raise NotHit(message)
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) << 10


def _no_gateway(deployment: Deployment) -> str | None:
    return None if deployment.fleet.gateway_ports else "there is no gateway"


_LONGEST_S = 2 * _ANSWERED_S

FAULTS = (
    Fault(
        "flood at the gateways",
        at_gateways,
        frozenset(("gateways", "flood")),
        impossible=_no_gateway,
        answers_within_s=_PROMISED_S,
        longest_s=_LONGEST_S,
    ),
    Fault("flood straight on Kafka", on_kafka, frozenset(("flood",)), longest_s=_LONGEST_S),
    Fault(
        "boot storm",
        boot_storm,
        frozenset(("gateways", "flood")),
        impossible=_no_gateway,
        longest_s=_LONGEST_S,
    ),
)
