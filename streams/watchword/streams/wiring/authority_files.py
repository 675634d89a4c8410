"""The CAs of a deployment, their keys in files or in a hardware module, as the settings say."""

from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from watchword.handlers.crypto.authority import Authority, CaKey
from watchword.handlers.crypto.ca_certificates import create_ca
from watchword.handlers.crypto.camanifest import CaEntry, entry_of, read_ca_manifest
from watchword.handlers.crypto.carotation import issuing_authorities
from watchword.handlers.crypto.keydirectory import KeyDirectory
from watchword.handlers.crypto.keyfiles import authority_of
from watchword.handlers.errors import ConfigRefused
from watchword.schemas.times import rfc3339
from watchword.streams.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime

    from watchword.streams.signer.pkcs11_token import Token


class AuthorityFiles:
    """Opens CAs: what the signer does, and the commands that sign CRLs or change the CA."""

    def __init__(self, settings: Settings, *, also: timedelta = timedelta(0)) -> None:
        """Take the settings; certificates may live as long as they say, and `also` so much longer."""
        self.directory: Path = settings.signer.ca_directory or settings.keys.directory
        self._settings = settings
        self._lifetime = timedelta(seconds=settings.deployment.certificate_lifetime_s) + also

    def opened(self, entry: CaEntry) -> Authority:
        """Return one CA; raises `ConfigRefused` or `SignerUnavailable`."""
        return authority_of(
            entry,
            self._key_of,
            trust_domain=self._settings.deployment.trust_domain,
            max_lifetime=self._lifetime,
        )

    def issuing(self) -> list[Authority]:
        """Return those that have issued, the active one first; raises as `opened`."""
        return issuing_authorities(self.directory, self.opened)

    def probe(self) -> None:
        """Return if the active CA's key is in reach; raises as `opened`."""
        entry = read_ca_manifest(self.directory).active
        if entry.in_hsm is not None:
            self.token.probe(entry.in_hsm)

    def made_in_token(self, label: str, trust_domain: str, now: "datetime") -> CaEntry:
        """Make a CA whose key is made in the module and stays there; return its entry, prepared.

        Raises:
            Conflict: the token has something of this label.
            ConfigRefused, SignerUnavailable: the module is not to be used.
        """
        key = self.token.make_key(label)
        _, certificate = create_ca(trust_domain, now=now, key=key, is_distinct=True)
        return entry_of([certificate], "prepared", in_hsm=label, prepared_at=rfc3339(now))

    @cached_property
    def token(self) -> "Token":
        """The token that the settings name; raises `ConfigRefused` if they name none."""
        signer = self._settings.signer
        given = (signer.pkcs11_module, signer.pkcs11_token, signer.pkcs11_pin_file)
        module, label, pin_file = given
        if module is None or label is None or pin_file is None:
            raise ConfigRefused(
                ["signer.pkcs11_module, pkcs11_token and pkcs11_pin_file: needed for this CA key"]
            )
        try:
            from watchword.streams.signer.pkcs11_token import Token  # noqa: PLC0415 - an extra
        except ImportError:
            raise ConfigRefused(
                ["python-pkcs11 is not installed: the CA key needs watchword[pkcs11]"]
            ) from None
        return Token(module, label, pin_file)

    def _key_of(self, entry: CaEntry) -> CaKey:
        if entry.in_hsm is None:
            return KeyDirectory(self.directory).ca_key_of(entry)
        return self.token.key(entry.in_hsm)
