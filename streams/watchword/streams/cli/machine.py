"""Options of the agent's commands: where its state is, how to reach the service, and what the machine can show."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from watchword.handlers.attestors.cloud_iid.binding import DEFAULT_AUDIENCE
from watchword.handlers.attestors.cloud_iid.prover import Provider
from watchword.handlers.attestors.join_token.prover import JoinTokenProver
from watchword.handlers.errors import BadArgument
from watchword.handlers.prover import Prover
from watchword.schemas.ids import Role
from watchword.streams.agent import provers, strangers
from watchword.streams.agent.clock import AgentClock
from watchword.streams.agent.exchange import KeyKind
from watchword.streams.agent.keystore import Keystore
from watchword.streams.agent.tpm.chip import TssChip
from watchword.streams.agent.tpm.options import AkKind, EkKind
from watchword.streams.agent.tpm.renewing import KeysInTpm
from watchword.streams.agent.trust import load_trust
from watchword.streams.cli.options import Shown
from watchword.streams.settings import agent_state

_MAX_STDIN = 4096


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OnMachine(Shown):
    """For every agent command."""

    state: Path | None = None
    """Where keys and certificates are kept, mode 0700: $XDG_STATE_HOME/watchword, or
    /var/lib/watchword for root."""

    def folder(self) -> Path:
        """Return the state directory."""
        return self.state or agent_state(os.environ, uid=os.getuid())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reaching(OnMachine):
    """For agent commands that talk to the service."""

    gateway: str | None = None
    """The gateway's URL, https://host[:port]."""

    ca_file: Path | None = None
    """PEM of the CAs for the gateway's certificate, instead of the system's."""

    kafka: Annotated[bool, Parameter(negative="")] = False
    """Talk straight to Kafka, as the settings of section `kafka` say, instead of to a gateway."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Joining(Reaching):
    """For agent commands that may join."""

    attestor: str = "join-token"
    """How the machine proves itself: join-token, x509pop, image, discovery, cloud-iid, tpm, or the id of another package's
    attestor whose prover is installed."""

    option: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """name=value for another package's prover; may be given several times. Everybody on the machine can read
    it: secrets belong into files."""

    prover_settings: Path | None = None
    """A TOML file with more of what another package's prover needs."""

    token_file: Path | None = None
    """join-token: a file with the join token. It may be written later than the agent starts."""

    token_stdin: Annotated[bool, Parameter(negative="")] = False
    """join-token: read the token from standard input."""

    certificate_file: Path | None = None
    """x509pop: PEM of the machine's certificate, and of what is between it and the CA."""

    key_file: Path | None = None
    """x509pop: PEM of the certificate's private key."""

    own_certificate: Annotated[bool, Parameter(negative="")] = False
    """x509pop: show the certificate of this machine's own identity, which has expired; with --again."""

    image_file: Path | None = None
    """image: a file with the image's secret."""

    image_stdin: Annotated[bool, Parameter(negative="")] = False
    """image: read the secret from standard input."""

    second: Literal["join-token", "x509pop", "discovery"] | None = None
    """image: the attestor whose proof the image asks for beside its secret; its own options say what to show."""

    assertion_file: Path | None = None
    """discovery: a file with what the site's agent asserts of this machine; it may be written later."""

    provider: Provider | None = None
    """cloud-iid: whose cloud this machine is an instance of. Its metadata service is asked, never through a
    proxy."""

    audience: str | None = None
    """cloud-iid, gcp: what the service is called in tokens, as `attestors.cloud-iid.gcp.audience` of the
    workers says; `watchword` if not given."""

    tcti: str | None = None
    """tpm: how to reach the TPM, such as device:/dev/tpmrm0; else what the TSS of this machine chooses."""

    ek: EkKind = "auto"
    """tpm: the kind of endorsement key; else the first that the TPM holds a certificate of."""

    ak: AkKind = "p256"
    """tpm: the kind of attestation key; the same chip makes the same key each time."""

    ek_certificate_file: Path | None = None
    """tpm: a certificate of the endorsement key that the TPM does not hold: DER, PEM, or a vendor's JSON."""

    event_log: Path = Path("/sys/kernel/security/tpm0/binary_bios_measurements")
    """tpm: the firmware's event log; a file that is not there is no log."""

    node_key_in_tpm: Annotated[bool, Parameter(negative="")] = False
    """tpm: make the node's key in the TPM (P-256; --key-kind does not count then), and have it certified."""

    role: Role | None = None
    """What the machine is; `ramdisk` for discovery, else `node`, if not given."""

    key_kind: KeyKind = "p256"
    """The kind of key to make."""

    @property
    def as_role(self) -> Role:
        """Return what the machine is."""
        return self.role or ("ramdisk" if self.attestor == "discovery" else "node")

    def check(self) -> None:
        """Raise `BadArgument` unless exactly what the attestor needs is given."""
        if (self.option or self.prover_settings is not None) and self.attestor in _SOURCES:
            message = f"--option and --prover-settings are for other packages' provers, not for {self.attestor}"
            raise BadArgument(message)
        sources = {
            "--token-file": self.token_file is not None,
            "--token-stdin": self.token_stdin,
            "--certificate-file": self.certificate_file is not None,
            "--key-file": self.key_file is not None,
            "--own-certificate": self.own_certificate,
            "--image-file": self.image_file is not None,
            "--image-stdin": self.image_stdin,
            "--assertion-file": self.assertion_file is not None,
            "--provider": self.provider is not None,
            "--ek-certificate-file": self.ek_certificate_file is not None,
            "--node-key-in-tpm": self.node_key_in_tpm,
        }
        given = {name for name, is_given in sources.items() if is_given}
        ways = _SOURCES.get(self.attestor, (set[str](),))
        if self.second is not None:
            if self.attestor != "image":
                message = f"--second is for image: {self.attestor} is enough, or is not"
                raise BadArgument(message)
            pairs = [mine | theirs for mine in ways for theirs in _SOURCES[self.second]]
            ways = tuple(pair for pair in pairs if len(pair & _STDIN) < 2)  # noqa: PLR2004 - it is read once
        if given not in ways:
            wanted = ", or ".join(" and ".join(sorted(way)) or "nothing" for way in ways)
            message = f"{self.attestor} needs {wanted}, and nothing of another attestor's"
            raise BadArgument(message)
        if self.audience is not None and self.provider != "gcp":
            message = "--audience is for --provider gcp: no other cloud signs one"
            raise BadArgument(message)


_STDIN = {"--token-stdin", "--image-stdin"}

_SOURCES: dict[str, tuple[set[str], ...]] = {
    "join-token": ({"--token-file"}, {"--token-stdin"}),
    "x509pop": ({"--certificate-file", "--key-file"}, {"--own-certificate"}),
    "image": ({"--image-file"}, {"--image-stdin"}),
    "discovery": ({"--assertion-file"},),
    "cloud-iid": ({"--provider"},),
    "tpm": (
        set(),
        {"--ek-certificate-file"},
        {"--node-key-in-tpm"},
        {"--ek-certificate-file", "--node-key-in-tpm"},
    ),
}


def chip_of(options: Joining) -> TssChip:
    """Return the TPM that the options name."""
    return provers.chip_of(
        tcti=options.tcti,
        ek=options.ek,
        ak=options.ak,
        certificate=options.ek_certificate_file,
    )


def key_maker_of(options: Joining) -> Callable[[], tuple[bytes, bytes]] | None:
    """Return what makes the node's key, if that is to be in the TPM."""
    if not options.node_key_in_tpm:
        return None
    return KeysInTpm(chip_of(options)).make


def keys_in_tpm(options: Joining) -> KeysInTpm | None:
    """Return where the node's key may be, for an agent that proves a TPM."""
    return KeysInTpm(chip_of(options)) if options.attestor == "tpm" else None


def prover_of(options: Joining, clock: AgentClock) -> Prover:
    """Return the prover that the options name.

    Raises:
        BadArgument: what it needs is not given, or standard input holds none, or there is no such prover.
        ConfigRefused: another package's prover cannot be loaded.
        NotBootstrapped, StateUnusable: a prover needs the trust domain, which comes with the keys.
    """
    options.check()
    if options.attestor not in _SOURCES:
        return _strangers(options)
    if options.attestor == "image":
        text = sys.stdin.read(_MAX_STDIN) if options.image_stdin else ""
        second = None if options.second is None else _alone(options.second, options, clock)
        return provers.image_prover(options.image_file, text, second)
    return _alone(options.attestor, options, clock)


def _strangers(options: Joining) -> Prover:
    """Return the prover that another package has registered."""
    found = strangers.provers()
    if options.attestor not in found:
        known = ", ".join(sorted(_SOURCES | found.keys()))
        message = f"no prover of {options.attestor[:80]!r} is installed (there is: {known})"
        raise BadArgument(message)
    settings = strangers.read_settings(options.option, options.prover_settings)
    return strangers.load_prover(found[options.attestor], settings)


def _alone(attestor: str, options: Joining, clock: AgentClock) -> Prover:
    """Return the prover of an attestor whose options are given."""
    if options.provider is not None:
        return provers.cloud_prover(options.provider, options.audience or DEFAULT_AUDIENCE)
    if options.assertion_file is not None:
        return provers.assertion_prover(options.assertion_file)
    if attestor == "x509pop":
        keystore = Keystore(options.folder())
        domain = load_trust(keystore, clock).key_set.trust_domain
        if options.certificate_file is not None and options.key_file is not None:
            return provers.certificate_prover(options.certificate_file, options.key_file, domain)
        return provers.own_certificate_prover(keystore, domain)
    if attestor == "tpm":
        return provers.tpm_prover(Keystore(options.folder()), chip_of(options), options.event_log)
    if options.token_file is not None:
        return JoinTokenProver.of_file(options.token_file)
    return JoinTokenProver.of_text(sys.stdin.read(_MAX_STDIN))
