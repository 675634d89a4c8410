"""Signing in at an OpenID Connect provider: authorization code with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636).

What has to come back is in a signed cookie of a few minutes, so that any console of a deployment can take it.
"""

import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, cast
from urllib.parse import quote_plus

import httpx
import structlog
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from watchword.handlers.errors import Denied, Unavailable
from watchword.handlers.operators.access import Access, OperatorRole

_log = structlog.get_logger(__name__)

STATE_SECONDS: Final = 600
_ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "Ed25519", "EdDSA"]
_LEEWAY_S: Final = 60
_PATIENCE_S: Final = 10.0
_PURPOSE: Final = b"watchword oidc v1\0"
_MAX_NAME: Final = 150


@dataclass(frozen=True, slots=True)
class Rule:
    """Whom the provider's word lets in, and as what."""

    claim: str
    value: str
    scope: str
    role: OperatorRole

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Tell whether an ID token says so."""
        said: object = claims.get(self.claim)
        if isinstance(said, list):
            return self.value in cast("list[object]", said)
        return said == self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdProvider:
    """A provider, and who this console is to it."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    name_claim: str = "email"
    rules: Sequence[Rule] = ()

    async def begin(self, key: bytes, then: str) -> tuple[str, str]:
        """Return where to send the visitor, and the cookie to send with them; raises `Unavailable`."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        found = await self._discovered()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": "openid email profile groups",
            "state": state,
            "nonce": nonce,
            "code_challenge": _b64url(sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        address = str(httpx.URL(found["authorization_endpoint"]).copy_merge_params(asked))
        kept = {"s": state, "n": nonce, "v": verifier, "t": then, "e": time.time() + STATE_SECONDS}
        return address, _sealed(key, kept)

    async def end(self, key: bytes, cookie: str, query: Mapping[str, str]) -> tuple[Access, str]:
        """Return who came back, and where they wanted to go.

        Raises:
            Denied: it is not an answer to what was asked, or no rule fits.
            Unavailable: the provider does not answer.
        """
        # 1. The cookie is ours, is young, and its state is the answer's (RFC 6749, 10.12).
        # 2. The code is good for an ID token.
        # 3. The token is signed by the provider, for us, and now, with our nonce (OpenID Connect Core, 3.1.3.7).
        # 4. A rule says as what.

        # Step 1
        kept = _opened(key, cookie)
        state = query.get("state", "")
        if kept is None or not hmac.compare_digest(state.encode(), str(kept["s"]).encode()):
            message = "this is no answer to a sign-in that began here; begin again"
            raise Denied(message)
        if "code" not in query:
            message = "the provider let nobody in"
            raise Denied(message)

        # Step 2
        found = await self._discovered()
        token = await self._exchanged(found["token_endpoint"], query["code"], str(kept["v"]))

        # Step 3
        claims = await self._claims(found, str(token.get("id_token", "")), str(kept["n"]))

        # Step 4
        name = str(claims.get(self.name_claim) or claims["sub"])[:_MAX_NAME]
        if not name.isprintable():
            message = "the provider gave a name that cannot be shown"
            raise Denied(message)
        rule = next((one for one in self.rules if one.fits(claims)), None)
        if rule is None:
            message = f"{name} is known to the provider, and no rule here lets them in"
            raise Denied(message)
        return Access(f"oidc:{name}", rule.scope, rule.role), str(kept["t"])

    async def _exchanged(self, address: str, code: str, verifier: str) -> dict[str, Any]:
        """Return what the token endpoint gives for a code (RFC 6749, 4.1.3; the client by HTTP Basic, 2.3.1)."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": verifier,
        }
        auth = httpx.BasicAuth(quote_plus(self.client_id), quote_plus(self.client_secret))
        try:
            async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
                answer = await client.post(address, data=form, auth=auth)
                said: object = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _away(error) from None
        if not answer.is_success or not isinstance(said, dict):
            _log.warning("provider refused a code", status=answer.status_code)
            message = "the provider took its code back; begin again"
            raise Denied(message)
        return cast("dict[str, Any]", said)

    async def _discovered(self) -> dict[str, str]:
        found = await self._fetched(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        wanted = ("authorization_endpoint", "token_endpoint", "jwks_uri", "issuer")
        if found.get("issuer") != self.issuer or not all(
            isinstance(found.get(name), str) for name in wanted
        ):
            message = "the identity provider describes itself as another one"
            raise Unavailable(message)
        return found

    async def _claims(self, found: Mapping[str, str], text: str, nonce: str) -> dict[str, Any]:
        keys = await self._fetched(found["jwks_uri"])
        try:
            token = jwt.decode(text, KeySet.import_key_set(cast("Any", keys)), _ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=_LEEWAY_S,
                iss={"essential": True, "value": self.issuer},
                aud={"essential": True, "value": self.client_id},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(token.claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            _log.warning("ID token does not hold", error=type(error).__name__)
            message = "the provider's word does not hold; begin again"
            raise Denied(message) from None
        claims: dict[str, Any] = token.claims
        audience = claims["aud"]
        if (
            isinstance(audience, list)
            and len(cast("list[str]", audience)) > 1
            and (claims.get("azp") != self.client_id)
        ):
            message = "the provider's word is for somebody else"
            raise Denied(message)
        return claims

    async def _fetched(self, address: str) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(timeout=_PATIENCE_S) as client:
                answer = await client.get(address)
                answer.raise_for_status()
                found: object = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _away(error) from None
        if not isinstance(found, dict):
            message = "the identity provider's answer cannot be read"
            raise Unavailable(message)
        return cast("dict[str, Any]", found)


def _away(error: Exception) -> Unavailable:
    _log.warning("identity provider is away", error=type(error).__name__)
    return Unavailable("the identity provider does not answer")


def _sealed(key: bytes, values: Mapping[str, object]) -> str:
    body = _b64url(json.dumps(values).encode())
    return f"{body}.{_mac(key, body)}"


def _opened(key: bytes, text: str) -> dict[str, Any] | None:
    body, _, mac = text.rpartition(".")
    if not body or not hmac.compare_digest(_mac(key, body).encode(), mac.encode()):
        return None
    values: dict[str, Any] = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return values if values["e"] > time.time() else None


def _b64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _mac(key: bytes, body: str) -> str:
    return hmac.digest(key, _PURPOSE + body.encode(), sha256).hex()
