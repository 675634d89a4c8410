"""Client certificates as a way in, over real TLS: whose are taken, for what, and until when."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.arrivals import joins
from tests.support.certificates import Held, OperatorCa
from tests.support.joins import Bench
from tests.support.operators import ADA
from tests.support.tls_console import TlsConsole, tls_console
from watchword.handlers.errors import BadArgument, Conflict, NotFound
from watchword.handlers.operators import api_tokens
from watchword.handlers.operators.certificates import canonical_name

pytestmark = pytest.mark.postgres

ADAS = "email:ada@ops.example"
NODES = "/api/v1/nodes"


@pytest.fixture
async def tls(database: str, tmp_path: Path) -> AsyncGenerator[TlsConsole]:
    async with tls_console(database, tmp_path) as console:
        yield console


async def test_a_certificate_of_a_known_operator_opens_api_and_pages(
    bench: Bench, tls: TlsConsole
) -> None:
    """Who has a smart card should need no second secret; and the audit log must say who it was."""
    await tls.admit(ADAS)
    shown = tls.mail("ada@ops.example")
    node = await joins(bench)

    asked = await tls.client(shown).get(NODES)
    visitor = tls.visitor(shown)
    looked = await visitor.get("/sign-in")
    came = await visitor.post("/sign-in", data={"by": "certificate"})
    page = await visitor.get("/")
    acted = await tls.client(shown).post(
        "/api/v1/nodes/evict", json={"nodes": [{"id": node, "version": 1}], "why": "a drill"}
    )

    assert [row["id"] for row in asked.json()["items"]] == [node]
    assert "Sign in with this certificate" in looked.text
    assert came.status_code == 303
    assert "Secure" in came.headers["Set-Cookie"]
    assert "certificate:email:ada@ops.example" in page.text
    assert acted.status_code == 200, acted.text
    who = await bench.fetch("SELECT who, action FROM audit_log WHERE who LIKE 'certificate:%'")
    assert {row["action"] for row in who} >= {"session.opened", "node.evict"}
    assert {row["who"] for row in who} == {f"certificate:{ADAS}"}


@pytest.mark.parametrize("name", ["subject:CN=ada", "uri:spiffe://ops/ada", "DNS:Ada.ops.example", "sha256"])  # fmt: skip
async def test_every_kind_of_name_is_found(bench: Bench, tls: TlsConsole, name: str) -> None:
    """CAs differ in where they write who somebody is."""
    shown = tls.operators.give(
        "ada",
        names=(x509.UniformResourceIdentifier("spiffe://ops/ada"), x509.DNSName("ada.ops.example")),
    )
    if name == "sha256":
        name = f"SHA256:{shown.certificate.fingerprint(SHA256()).hex(':').upper()}"
    assert (await tls.client(shown).get(NODES)).status_code == 401

    await tls.admit(name, "viewer")

    assert (await tls.client(shown).get(NODES)).status_code == 200
    assert await bench.one("SELECT count(*) FROM operator_tokens") == 1


async def test_without_a_certificate_the_other_ways_stay(bench: Bench, tls: TlsConsole) -> None:
    """Asking for a certificate must not lock those out who come with a token."""
    del bench
    await tls.admit(ADAS)
    order = api_tokens.ApiTokenOrder(name="ci")
    token = (await api_tokens.create_api_token(tls.database, ADA, order)).text
    visitor = tls.visitor(None)

    assert (await tls.client(None).get(NODES)).status_code == 401
    looked = await visitor.get("/sign-in")
    assert "Sign in with this certificate" not in looked.text
    assert "your browser showed none" in looked.text
    refused = await visitor.post("/sign-in", data={"by": "certificate"})
    assert refused.status_code == 403
    with_token = tls.client(None, {"Authorization": f"Bearer {token}"})
    assert (await with_token.get(NODES)).status_code == 200
    # A wrong token is not made good by the certificate beside it.
    both = tls.client(tls.mail("ada@ops.example"), {"Authorization": "Bearer wo1.wrong"})
    assert (await both.get(NODES)).status_code == 401


@pytest.mark.parametrize("what", ["another CA", "expired", "not yet", "for a server"])
async def test_a_certificate_that_does_not_count_ends_in_the_handshake(
    bench: Bench, tls: TlsConsole, what: str
) -> None:
    """Anybody can write an operator's name into a certificate of their own."""
    await tls.admit(ADAS)
    names = (x509.RFC822Name("ada@ops.example"),)
    day = timedelta(days=1)
    shown: Held = {
        "another CA": lambda: OperatorCa("operators' CA").give("ada", names=names),
        "expired": lambda: tls.operators.give("ada", names=names, begins=-2 * day, ends=-day),
        "not yet": lambda: tls.operators.give("ada", names=names, begins=day, ends=2 * day),
        "for a server": lambda: tls.operators.give("ada", names=names, extensions=(
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), True),)),
    }[what]()  # fmt: skip

    with pytest.raises((httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)):
        await tls.client(shown).get(NODES)

    assert (await tls.client(tls.mail("ada@ops.example")).get(NODES)).status_code == 200
    assert await bench.one("SELECT count(*) FROM audit_log WHERE action = 'session.opened'") == 0


async def test_an_unknown_operator_stays_outside(bench: Bench, tls: TlsConsole) -> None:
    """A company's CA gives certificates to everybody who works there."""
    await tls.admit(ADAS)
    shown = tls.mail("mallory@ops.example")
    visitor = tls.visitor(shown)

    asked = await tls.client(shown).get(NODES)
    came = await visitor.post("/sign-in", data={"by": "certificate"})

    assert asked.status_code == 401
    assert "names no operator" in asked.json()["detail"]
    assert came.status_code == 403
    assert "names no operator" in came.text
    assert (await visitor.get("/nodes")).status_code == 303
    assert await bench.one("SELECT count(*) FROM operator_sessions") == 0


async def test_a_certificate_with_names_of_several_operators_is_nobodys(
    bench: Bench, tls: TlsConsole
) -> None:
    """Whose rights they are must not hang on an order."""
    del bench
    await tls.admit(ADAS, "viewer")
    await tls.admit("email:root@ops.example", "admin")

    asked = await tls.client(tls.mail("ada@ops.example", "root@ops.example")).get(NODES)

    assert asked.status_code == 401
    assert "several operators" in asked.json()["detail"]


async def test_an_operator_of_one_tenant_stays_in_it(bench: Bench, tls: TlsConsole) -> None:
    """A certificate is a way in and no way around."""
    await tls.admit(ADAS, "admin", "acme")
    inside, outside = await joins(bench), await joins(bench, tenant="other")
    shown = tls.mail("ada@ops.example")
    client, visitor = tls.client(shown), tls.visitor(shown)
    await visitor.post("/sign-in", data={"by": "certificate"})

    assert (await client.get(f"{NODES}/{inside}")).status_code == 200
    assert (await client.get(f"{NODES}/{outside}")).status_code == 404
    assert (await client.get("/api/v1/audit")).status_code == 404
    assert (await visitor.get(f"/nodes/{inside}")).status_code == 200
    assert (await visitor.get(f"/nodes/{outside}")).status_code == 404


async def test_an_operator_who_is_taken_out_is_out_at_once(bench: Bench, tls: TlsConsole) -> None:
    """Their connection is open, their session too, and their certificate is good for another year."""
    row = await tls.admit(ADAS)
    shown = tls.mail("ada@ops.example")
    client, visitor = tls.client(shown), tls.visitor(shown)
    await visitor.post("/sign-in", data={"by": "certificate"})
    assert (await client.get(NODES)).status_code == 200
    assert (await visitor.get("/nodes")).status_code == 200
    with pytest.raises(Conflict):
        await tls.admit(ADAS, "viewer")

    await api_tokens.revoke_api_token(tls.database, ADA, row)

    assert (await client.get(NODES)).status_code == 401
    assert (await visitor.get("/nodes")).status_code == 303
    # And who comes back comes back without the sessions of before.
    assert await tls.admit(ADAS, "viewer") == row
    assert (await client.get(NODES)).status_code == 200
    assert (await visitor.get("/nodes")).status_code == 303
    assert await bench.one("SELECT count(*) FROM operator_sessions") == 0


async def test_a_session_is_of_no_use_without_its_certificate(
    bench: Bench, tls: TlsConsole
) -> None:
    """Cookies are stolen from disks and logs; the key is in a card."""
    del bench
    await tls.admit(ADAS)
    await tls.admit("email:grace@ops.example")
    visitor = tls.visitor(tls.mail("ada@ops.example"))
    await visitor.post("/sign-in", data={"by": "certificate"})
    (cookie,) = visitor.cookies.jar
    carried = {"Cookie": f"{cookie.name}={cookie.value}"}

    assert (await tls.client(None, carried).get("/nodes")).status_code == 303
    other = tls.client(tls.mail("grace@ops.example"), carried)
    assert (await other.get("/nodes")).status_code == 303
    renewed = tls.client(tls.mail("ada@ops.example"), carried)
    assert (await renewed.get("/nodes")).status_code == 200


async def test_an_open_connection_does_not_outlive_its_certificate(
    bench: Bench, tls: TlsConsole
) -> None:
    """TLS looks at the certificate once; a dashboard keeps its connection for weeks."""
    await tls.admit(ADAS)
    shown = tls.mail("ada@ops.example")
    client, visitor = tls.client(shown), tls.visitor(shown)
    await visitor.post("/sign-in", data={"by": "certificate"})
    ends = await bench.one("SELECT expires_at FROM operator_sessions")
    assert ends < shown.certificate.not_valid_after_utc
    assert (await client.get(NODES)).status_code == 200

    name = await bench.one("SELECT current_database()")
    await bench.run(f"ALTER DATABASE \"{name}\" SET watchword.clock_shift = '400 days'")
    await bench.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watchword-test-console'"
    )

    asked = [await client.get(NODES) for _ in range(2)][-1]
    assert asked.status_code == 401, asked.text
    assert "not valid now" in asked.json()["detail"]


@pytest.mark.parametrize("header", ["X-Forwarded-Client-Cert", "X-SSL-Client-Cert", "X-Client-Cert", "Client-Cert", "X-SSL-Client-S-DN"])  # fmt: skip
async def test_what_a_header_says_of_a_certificate_is_believed_by_nobody(
    bench: Bench, tls: TlsConsole, header: str
) -> None:
    """Whoever reaches the console past its proxy could write any header."""
    del bench
    await tls.admit(ADAS)
    shown = tls.mail("ada@ops.example")

    for said in (f":{b64encode(shown.der).decode()}:", "emailAddress=ada@ops.example", ADAS):
        client = tls.client(None, {header: said})
        assert (await client.get(NODES)).status_code == 401
        came = await client.post("/sign-in", data={"by": "certificate"})
        assert came.status_code == 403


async def test_a_page_of_somebody_else_does_not_act_with_a_certificate(
    bench: Bench, tls: TlsConsole
) -> None:
    """Browsers show a certificate to whatever page asks them to send something here."""
    await tls.admit(ADAS)
    shown = tls.mail("ada@ops.example")
    node = await joins(bench)
    body = {"nodes": [{"id": node, "version": 1}], "why": "?"}

    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        client = tls.client(shown, headers)
        assert (await client.post("/api/v1/nodes/evict", json=body)).status_code == 403
        assert (await client.get(NODES)).status_code == 403
        came = await client.post("/sign-in", data={"by": "certificate"})
        assert came.status_code == 403
        assert "Set-Cookie" not in came.headers

    assert await bench.one("SELECT state FROM nodes WHERE id = $1::uuid", node) == "adopting"


async def test_names_of_certificates_are_checked_before_they_are_let_in(
    bench: Bench, tls: TlsConsole
) -> None:
    """A name that no certificate can have would be let in and never come."""
    del bench
    for wrong in ("ada", "mail:ada", "email:", "sha256:abc", "sha256:" + "g" * 64, "uri:a\x00", "subject:" + "x" * 100):  # fmt: skip
        with pytest.raises(BadArgument):
            canonical_name(wrong)
    with pytest.raises(NotFound):
        await tls.admit(ADAS, scope="nowhere")
