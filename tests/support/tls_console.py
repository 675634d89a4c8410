"""A console that ends TLS and asks for client certificates, and clients that show one, over real connections of this machine."""

import contextlib
import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.certificates import Held, OperatorCa
from tests.support.operators import ADA, KEY
from watchword.handlers.operators.access import OperatorRole
from watchword.handlers.operators.certificates import CertificateOrder, admit_certificate
from watchword.handlers.store.connection import Database
from watchword.streams.console.office import Office
from watchword.streams.console.options import ConsoleOptions, TlsFiles
from watchword.streams.console.process import Console
from watchword.streams.health import Health


@dataclass
class TlsConsole:
    """A console, its database, and the CA of its operators."""

    folder: Path
    database: Database
    operators: OperatorCa
    url: str = ""
    clients: list[httpx.AsyncClient] = field(default_factory=list[httpx.AsyncClient])

    async def admit(self, name: str, role: OperatorRole = "admin", scope: str = "root") -> str:
        """Let a name in; return the id of its row."""
        order = CertificateOrder(name=name, role=role, scope=scope)
        row = await admit_certificate(self.database, ADA, order)
        return str(row["id"])

    def mail(self, *addresses: str) -> Held:
        """Return a certificate for e-mail addresses, of the operators' CA."""
        return self.operators.give("somebody", names=tuple(map(x509.RFC822Name, addresses)))

    def client(
        self, shown: Held | None, headers: dict[str, str] | None = None
    ) -> httpx.AsyncClient:
        """Return a client that shows this certificate, or none, on one connection of its own."""
        context = ssl.create_default_context(cafile=self.folder / "server-ca.pem")
        if shown is not None:
            file = self.folder / f"{shown.certificate.serial_number}.pem"
            file.write_bytes(shown.pem + shown.key_pem)
            context.load_cert_chain(file)
        client = httpx.AsyncClient(
            verify=context,
            base_url=self.url,
            headers=headers,
            trust_env=False,
            timeout=60,
            limits=httpx.Limits(max_connections=1),
        )
        self.clients.append(client)
        return client

    def visitor(self, shown: Held | None) -> httpx.AsyncClient:
        """Return a browser's client."""
        return self.client(shown, {"Origin": self.url, "Sec-Fetch-Site": "same-origin"})


@contextlib.asynccontextmanager
async def tls_console(dsn: str, folder: Path) -> AsyncGenerator[TlsConsole]:
    """Give a console on this database."""
    server_ca, operators = OperatorCa("servers' CA"), OperatorCa("operators' CA")
    names = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))
    server = server_ca.give("console", names=names)
    for name, content in {
        "server-ca.pem": server_ca.certificate.public_bytes(Encoding.PEM),
        "client-ca.pem": operators.certificate.public_bytes(Encoding.PEM),
        "server.pem": server.pem,
        "server-key.pem": server.key_pem,
    }.items():
        (folder / name).write_bytes(content)
    database = Database(dsn, application_name="watchword-test-console")
    options = ConsoleOptions(
        office=Office(database=database, cluster="test"),
        session_key=KEY,
        port=0,
        tls=TlsFiles(folder / "server.pem", folder / "server-key.pem", folder / "client-ca.pem"),
        health_port=0,
    )
    made = TlsConsole(folder, database, operators)
    running = Console(options, Health())
    try:
        async with running.running():
            made.url = running.url
            try:
                yield made
            finally:
                for client in made.clients:
                    await client.aclose()
    finally:
        await database.close()
