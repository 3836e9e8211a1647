"""OAUTHBEARER tokens signed by an identity provider (KIP-768), verified with its public keys, a JSON Web Key Set.

| property of a listener | |
|---|---|
| `sasl.oauthbearer.jwks.endpoint.url` | the address of the keys, `https://…` or `file:///…` |
| `sasl.oauthbearer.expected.audience` | comma-separated; the token must name one. By default, tokens with `aud` are rejected |
| `sasl.oauthbearer.expected.issuer` | the required issuer |
| `sasl.oauthbearer.clock.skew.seconds` | the tolerated clock skew; 30 by default |
| `sasl.oauthbearer.sub.claim.name` | the claim that names the user; `sub` by default |
| `sasl.oauthbearer.jwks.endpoint.refresh.ms` | the maximum age of keys, 3600000 by default. Another thread reloads them |

`exp` and `iat` are required, as in Kafka's validator. Only signatures with public keys are accepted (RS, PS, ES, EdDSA), never
shared keys or `none`. A token signed with an unknown key is rejected. The keys are then reloaded for the client's next attempt,
at most every ten seconds. PyJWT verifies the tokens (extra `oauth`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.extras import imported_from
from tidelog.security.oauth_bearer import as_time, without_user

logger = logging.getLogger("tidelog.security")

URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
SIGNED_TOKEN_PROPERTIES: Final = frozenset(
    {URL}
    | {f"sasl.oauthbearer.{name}" for name in ("expected.audience", "expected.issuer", "clock.skew.seconds", "sub.claim.name")}
    | {"sasl.oauthbearer.jwks.endpoint.refresh.ms"}
)

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The algorithms of each key type."""

HURRY_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The claims that a token must have. If `audiences` is empty, no audience is required; if `issuer` is None, any issuer is
    accepted.
    """

    url: str
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    name_claim: str = "sub"
    refresh_s: float = 3600.0


class SignedTokens:
    """Verifies tokens. `read` returns a key set's bytes. It is called once by the constructor, and later on other threads. Raises
    InvalidArgumentError for an invalid key set.
    """

    def __init__(self, rules: TokenRules, read: Callable[[str], bytes]) -> None:
        with imported_from("oauth", "PyJWT"):
            import jwt
        with imported_from("oauth", "cryptography"):
            import cryptography  # noqa: F401
        self._jwt = jwt
        self._rules = rules
        self._read = read
        self._reading = threading.Lock()
        self._read_at = monotonic()
        self._keys = self._fetched()

    def judge(self, token: str) -> tuple[str, float] | None:
        """Return the token's user and expiry (epoch seconds), None if the token is rejected."""
        if monotonic() - self._read_at > self._rules.refresh_s:
            self._read_again()
        try:
            claims = self._claims(token)
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            logger.info("rejected an OAUTHBEARER token: %s", type(error).__name__)
            return None
        name, expires = claims.get(self._rules.name_claim), claims["exp"]
        return (name, as_time(expires)) if isinstance(name, str) and name else None

    def _claims(self, token: str) -> Mapping[str, Any]:
        header = self._jwt.get_unverified_header(token)
        key_id, algorithm = header.get("kid"), header.get("alg")
        fitting = [key for key in self._keys if key_id in (None, key.key_id) and algorithm in self._algorithms(key)]
        if not fitting:
            if monotonic() - self._read_at > HURRY_S:
                self._read_again()
            raise self._jwt.InvalidKeyError
        refused: Exception = self._jwt.InvalidSignatureError()
        for key in fitting:
            try:
                claims: Mapping[str, Any] = self._jwt.decode(
                    token,
                    key.key,
                    algorithms=self._algorithms(key),
                    audience=self._rules.audiences or None,
                    issuer=self._rules.issuer,
                    leeway=self._rules.skew_s,
                    options={"require": ["exp", "iat"]},
                )
            except self._jwt.InvalidSignatureError as error:
                refused = error
            else:
                return claims
        raise refused

    def _algorithms(self, key: Any) -> list[str]:
        known = ALGORITHMS.get(key.key_type, ())
        return [one for one in known if one == (key._jwk_data.get("alg") or one)]

    def _read_again(self) -> None:
        """Reload the keys on another thread, unless a reload is in progress. A failure is logged, and the old keys stay
        in use.
        """
        if not self._reading.acquire(blocking=False):
            return
        self._read_at = monotonic()

        def read() -> None:
            try:
                self._keys = self._fetched()
            except (AuthenticationError, InvalidArgumentError) as error:
                logger.warning("the keys that verify tokens could not be reloaded, so the old ones stay in use: %s", error)
            finally:
                self._reading.release()

        threading.Thread(target=read, name="tidelog-jwks", daemon=True).start()

    def _fetched(self) -> list[Any]:
        place = without_user(self._rules.url)
        try:
            keys = self._jwt.PyJWKSet.from_dict(json.loads(self._read(self._rules.url))).keys
        except (self._jwt.PyJWTError, ValueError, TypeError, AttributeError, RecursionError):
            raise InvalidArgumentError("the content is not a key set for tokens (JWKS)", path=place) from None
        usable = [key for key in keys if key.key_type in ALGORITHMS and key.public_key_use in (None, "sig")]
        if not usable:
            raise InvalidArgumentError("the key set for tokens (JWKS) has no public key for signatures", path=place)
        return usable


def token_rules(text: Callable[[str], str]) -> TokenRules | None:
    """Return the rules that the properties set, None if no key set is configured. `text` returns a property's value. Raises
    InvalidArgumentError.
    """
    url = text(URL)
    if not url:
        return None
    if not url.startswith(("https://", "http://", "file://")):
        raise InvalidArgumentError(URL, found=repr(without_user(url)), expected="https://…, or file:///…")

    def number(name: str, default: int) -> int:
        found = text(name) or str(default)
        if not (found.isascii() and found.isdigit()):
            raise InvalidArgumentError(name, found=repr(found), expected="a whole number")
        return int(found)

    return TokenRules(
        url=url,
        audiences=tuple(word.strip() for word in text("sasl.oauthbearer.expected.audience").split(",") if word.strip()),
        issuer=text("sasl.oauthbearer.expected.issuer") or None,
        skew_s=number("sasl.oauthbearer.clock.skew.seconds", 30),
        name_claim=text("sasl.oauthbearer.sub.claim.name") or "sub",
        refresh_s=number("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000) / 1000,
    )
