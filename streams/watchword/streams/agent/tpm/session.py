"""A TPM while it is open: its endorsement key, an attestation key, quotes and certifications.

No resource manager is assumed. A TPM may have room for three objects: none of ours stays loaded beyond
`end`, a command that finds no room is asked again, and objects of ours that a killed process has left
are flushed. The attestation key is a primary key of the endorsement hierarchy: it is made of the chip's seed
whenever it is needed. No file, index, handle or hierarchy is written.
"""

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from watchword.handlers.attestors.tpm.evidence import Certification
from watchword.handlers.attestors.tpm.prover import Endorsement, Quotation
from watchword.handlers.prover import NoEvidence
from watchword.streams.agent.tpm.library import code_of
from watchword.streams.agent.tpm.options import AK_FORMS, TEMPLATES, Options, is_made_from
from watchword.streams.agent.tpm.pcrs import Pcrs

_Result = TypeVar("_Result")

_CHAIN = range(0x01C00100, 0x01C00200)
"""NV indexes of the CAs that certified the endorsement key (EK Credential Profile, 2.2.1.5)."""
_PERSISTENT = range(0x81010000, 0x81020000)
"""Handles for endorsement keys (TCG "Registry of Reserved TPM 2.0 Handles and Localities")."""
_READINGS = 5
_MAX_HANDLES = 254
_INDEXES = 0x01C00000
"""The first NV index that the TCG has reserved for certificates of endorsement keys."""
_TRANSIENT = 0x80000000
_MAX_CHAIN_BYTES = 32 * 1024


class Session:
    """See `watchword.handlers.attestors.tpm.prover.ChipSession`."""

    def __init__(self, tss: Any, esapi: Any, options: Options) -> None:  # noqa: ANN401 - see `library`
        """Take the library, an open context, and how to work with it."""
        self._tss = tss
        self._esapi = esapi
        self._options = options
        self._loaded: list[Any] = []
        self._pcrs = Pcrs(tss, esapi, self._ask)
        self._utils: Any = importlib.import_module("tpm2_pytss.utils")
        self._template: Any = None
        self._indexes: frozenset[int] = frozenset()
        self._certificate = b""
        self._ek_area = b""
        self._ak_area = b""
        self._ak: Any = None
        self._ek: Any = None

    def begin(self) -> None:
        """Choose the endorsement key, and make the attestation key."""
        self._certificate, self._template = self._chosen()
        self._ek_handle()
        self._ak = self._attestation_key()

    def end(self) -> None:
        """Flush whatever of ours is loaded; what cannot be flushed is left to the next one's `_make_room`."""
        for handle in reversed(self._loaded):
            with suppress(self._tss.TSS2_Exception):
                self._esapi.flush_context(handle)
        self._loaded.clear()

    # ChipSession

    def endorsement(self) -> Endorsement:
        """Return the endorsement key with its certificate: what was handed in, or what the TPM holds."""
        if self._options.certificate is not None:
            certificate, chain = self._options.certificate()
            return Endorsement(self._ek_area, certificate, chain)
        chain = tuple(self._stored_chain()) if self._certificate else ()
        return Endorsement(self._ek_area, self._certificate, chain)

    def attestation_key(self) -> bytes:
        """Return the attestation key's TPM2B_PUBLIC."""
        return self._ak_area

    def activate(self, id_object: bytes, encrypted_secret: bytes) -> bytes:
        """Return what a credential holds."""
        tss = self._tss
        try:
            credential, _ = tss.TPM2B_ID_OBJECT.unmarshal(id_object)
            secret, _ = tss.TPM2B_ENCRYPTED_SECRET.unmarshal(encrypted_secret)
        except (tss.TSS2_Exception, ValueError):
            message = "the challenge holds no credential"
            raise NoEvidence(message) from None
        ek = self._ek_handle()
        with self._ek_authority() as authority:
            found = self._ask(
                lambda: self._esapi.activate_credential(
                    self._ak,
                    ek,
                    credential,
                    secret,
                    session1=tss.ESYS_TR.PASSWORD,
                    session2=authority,
                )
            )
        return bytes(found)

    def quote(self, banks: tuple[str, ...], pcrs: tuple[int, ...], extra: bytes) -> Quotation:
        """Return a quote, and values that are of the same moment."""
        tss = self._tss
        bank = self._pcrs.bank(banks, pcrs)
        selection = tss.TPML_PCR_SELECTION.parse(f"{bank}:{','.join(map(str, pcrs))}")
        scheme = tss.TPMT_SIG_SCHEME(scheme=tss.TPM2_ALG.NULL)
        # A PCR may be extended between the two commands: the values are those before and after the quote.
        for _ in range(_READINGS):
            before = self._pcrs.values(bank, pcrs)
            attest, signature = self._ask(
                lambda: self._esapi.quote(self._ak, selection, tss.TPM2B_DATA(extra), scheme)
            )
            if self._pcrs.values(bank, pcrs) == before:
                return Quotation(bytes(attest), bytes(signature.marshal()), before)
        message = "the PCRs change all the time"
        raise NoEvidence(message)

    def certify(self, key_pem: bytes, extra: bytes) -> Certification:
        """Return what the attestation key says of a key in this TPM, which is in a TSS2 PRIVATE KEY."""
        tss = self._tss
        key = _tss_key(key_pem)
        scheme = tss.TPMT_SIG_SCHEME(scheme=tss.TPM2_ALG.NULL)
        self._drop_ek()  # the key and its parent have to fit beside the attestation key
        with self._flushed(self._ask(lambda: key.load(self._esapi))) as handle:
            attest, signature = self._ask(
                lambda: self._esapi.certify(handle, self._ak, tss.TPM2B_DATA(extra), scheme)
            )
        return Certification(bytes(key.public.marshal()), bytes(attest), bytes(signature.marshal()))

    def make_node_key(self) -> tuple[bytes, bytes]:
        """Make a P-256 key below the owner's storage root; return its TSS2 PRIVATE KEY and a CSR that it has signed."""
        tsskey: Any = importlib.import_module("tpm2_pytss.tsskey")
        self._drop_ek()
        key = self._ask(lambda: tsskey.TSSPrivKey.create_ecc(self._esapi))
        pem = bytes(key.to_pem())
        return pem, self.csr(pem)

    def csr(self, key_pem: bytes) -> bytes:
        """Return a CSR that a node's key in this TPM has signed, which is in a TSS2 PRIVATE KEY."""
        with self._private(key_pem) as private:
            builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
            return self._ask(lambda: builder.sign(private, SHA256())).public_bytes(Encoding.DER)

    def sign(self, key_pem: bytes, text: bytes) -> bytes:
        """Return the signature of a node's key in this TPM, which is in a TSS2 PRIVATE KEY."""
        with self._private(key_pem) as private:
            return bytes(self._ask(lambda: private.sign(text, ec.ECDSA(SHA256()))))

    @contextmanager
    def _private(self, key_pem: bytes) -> Generator[Any]:
        """Give a node's key in this TPM as a private key of `cryptography`."""
        keys: Any = importlib.import_module("tpm2_pytss.cryptography")
        key = _tss_key(key_pem)
        self._drop_ek()  # the key and its parent have to fit beside the attestation key
        with self._flushed(self._ask(lambda: key.load(self._esapi))) as handle:
            yield keys.tpm_ecc_private_key(self._esapi, handle)

    def pcrs(self) -> dict[str, dict[str, str]]:
        """Return the values of all PCRs of firmware and boot loader, by bank and number, in hexadecimal."""
        return self._pcrs.all()

    # Endorsement key

    def _chosen(self) -> tuple[bytes, Any]:
        """Return the certificate and the template of the first kind that has a certificate, else of the first kind."""
        self._indexes = frozenset(self._handles(_INDEXES))
        wanted = self._options.ek
        kinds = tuple(TEMPLATES) if wanted == "auto" else (wanted,)
        bare: Any = None
        for name in (name for kind in kinds for name in TEMPLATES[kind]):
            try:
                certificate, template = self._ask(
                    partial(self._utils.create_ek_template, name, self._read_index)
                )
            except ValueError:  # a template of the high range needs its certificate
                continue
            if certificate:
                return bytes(certificate), template
            bare = bare or template
        if bare is None:
            message = f"the TPM holds no certificate of a {wanted} endorsement key"
            raise NoEvidence(message)
        return b"", bare

    def _read_index(self, index: int) -> bytes:
        if index not in self._indexes:
            raise self._utils.NoSuchIndex(index)
        return bytes(self._utils.NVReadEK(self._esapi)(index))

    def _stored_chain(self) -> Generator[bytes]:
        """Give the certificates that the vendor has left in the TPM, at most `_MAX_CHAIN_BYTES` of them."""
        found = b""
        for index in _CHAIN:
            try:
                found += self._read_index(index)
            except self._utils.NoSuchIndex:
                break
            if len(found) > _MAX_CHAIN_BYTES:
                return
        while found[:1] == b"\x30":
            size = _outer_size(found)
            yield found[:size]
            found = found[size:]

    def _ek_handle(self) -> Any:  # noqa: ANN401 - see `library`
        """Return the endorsement key: the persistent one if it is of this template, else made from it.

        A discrete TPM takes seconds to make an RSA key, so it stays loaded while there is room.
        """
        if self._ek is not None:
            return self._ek
        persistent = self._persistent()
        if persistent is not None:
            return persistent
        tss = self._tss
        made = self._ask(
            lambda: self._esapi.create_primary(
                tss.TPM2B_SENSITIVE_CREATE(), self._template, tss.ESYS_TR.ENDORSEMENT
            )
        )
        self._ek, area = made[0], made[1]
        self._loaded.append(self._ek)
        self._ek_area = bytes(area.marshal())
        return self._ek

    def _drop_ek(self) -> None:
        if self._ek is not None:
            self._loaded.remove(self._ek)
            self._ask(lambda: self._esapi.flush_context(self._ek))
            self._ek = None

    def _persistent(self) -> Any:  # noqa: ANN401 - see `library`
        tss = self._tss
        for number in self._handles(_PERSISTENT.start):
            if number not in _PERSISTENT:
                continue
            handle = self._ask(partial(self._esapi.tr_from_tpmpublic, number))
            area, _, _ = self._ask(partial(self._esapi.read_public, handle))
            if is_made_from(tss, area, self._template):
                self._ek_area = bytes(area.marshal())
                return handle
        return None

    @contextmanager
    def _ek_authority(self) -> Generator[Any]:
        """Give what opens the endorsement key: nothing, or knowledge of the hierarchy's (empty) password."""
        tss = self._tss
        if self._template.publicArea.objectAttributes & tss.TPMA_OBJECT.USERWITHAUTH:
            yield tss.ESYS_TR.PASSWORD
            return
        none = tss.ESYS_TR.NONE
        session = self._ask(
            lambda: self._esapi.start_auth_session(
                none,
                none,
                tss.TPM2_SE.POLICY,
                tss.TPMT_SYM_DEF(algorithm=tss.TPM2_ALG.NULL),
                tss.TPM2_ALG.SHA256,
            )
        )
        with self._flushed(session):
            empty = tss.TPM2B_NONCE()
            self._ask(
                lambda: self._esapi.policy_secret(
                    tss.ESYS_TR.ENDORSEMENT, session, empty, tss.TPM2B_DIGEST(), empty, 0
                )
            )
            yield session

    # Attestation key

    def _attestation_key(self) -> Any:  # noqa: ANN401 - see `library`
        """Make the attestation key, which is the same each time: it comes from the chip's own seed and its template.

        So nothing of it has to be kept, and a machine whose disk is new has the key that its node's statement names.
        """
        tss = self._tss
        form, name_hash = AK_FORMS[self._options.ak]
        bits = tss.TPMA_OBJECT
        template = tss.TPM2B_PUBLIC.parse(
            form,
            nameAlg=name_hash,
            objectAttributes=bits.RESTRICTED
            | bits.SIGN_ENCRYPT
            | bits.FIXEDTPM
            | bits.FIXEDPARENT
            | bits.SENSITIVEDATAORIGIN
            | bits.USERWITHAUTH
            | bits.NODA,
        )
        made = self._ask(
            lambda: self._esapi.create_primary(
                tss.TPM2B_SENSITIVE_CREATE(), template, tss.ESYS_TR.ENDORSEMENT
            )
        )
        self._loaded.append(made[0])
        self._ak_area = bytes(made[1].marshal())
        return made[0]

    # What they share

    def _ask(self, command: Callable[[], _Result]) -> _Result:
        return self._options.patience.ask(command, code_of, full=self._make_room)

    @contextmanager
    def _flushed(self, handle: Any) -> Generator[Any]:  # noqa: ANN401 - see `library`
        """Give a loaded object or a session, and flush it: it is in nobody's way afterwards."""
        self._loaded.append(handle)
        try:
            yield handle
        finally:
            self._loaded.remove(handle)
            with suppress(self._tss.TSS2_Exception):
                self._esapi.flush_context(handle)

    def _make_room(self) -> None:
        """Flush objects that are ours by their public areas, and were left by a process that was killed.

        Without a resource manager they would stay until the machine is restarted. Whatever is not known to
        be ours belongs to somebody else, and stays.
        """
        ours = {self._ak_area, self._ek_area} - {b""}
        mine = {int(self._esapi.tr_get_tpm_handle(handle)) for handle in self._loaded}
        with suppress(self._tss.TSS2_Exception):
            for number in self._handles(_TRANSIENT):
                if number in mine:
                    continue
                handle = self._esapi.tr_from_tpmpublic(number)
                area, _, _ = self._esapi.read_public(handle)
                if bytes(area.marshal()) in ours or is_made_from(self._tss, area, self._template):
                    self._esapi.flush_context(handle)
                else:
                    self._esapi.tr_close(handle)

    def _handles(self, first: int) -> list[int]:
        """Return the handles of one kind from a first one on: what is there, and not what it is."""
        found: list[int] = []
        more = True
        while more and len(found) < _MAX_HANDLES:
            start = found[-1] + 1 if found else first
            more, said = self._esapi.get_capability(self._tss.TPM2_CAP.HANDLES, start, _MAX_HANDLES)
            handles = said.data.handles
            if not handles.count:
                break
            found += [int(handles.handle[n]) for n in range(handles.count)]
        return found


def _tss_key(pem: bytes) -> Any:  # noqa: ANN401 - see `library`
    tsskey: Any = importlib.import_module("tpm2_pytss.tsskey")
    try:
        return tsskey.TSSPrivKey.from_pem(pem)
    except (TypeError, ValueError):
        message = "the node's key is in no TPM"
        raise NoEvidence(message) from None


def _outer_size(der: bytes) -> int:
    """Return how many bytes the first element of DER takes; all that there are if it does not say."""
    if len(der) < 4 or der[1] != 0x82:  # noqa: PLR2004 - certificates have a length of two bytes
        return len(der)
    return 4 + int.from_bytes(der[2:4], "big")
