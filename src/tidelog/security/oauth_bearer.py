r"""OAUTHBEARER (RFC 7628; KIP-255, KIP-768): client and server side, and the messages of a token endpoint.

    n,,\x01auth=Bearer <token>\x01\x01

The server rejects a token with a JSON challenge, `{"status":"invalid_token"}`. The client answers `\x01`, and the server ends the
exchange.

| source of a client's token | |
|---|---|
| a callback | it is called for each authentication, also when a session is renewed |
| a token endpoint | grants a token for client credentials (RFC 6749, 4.4): `token_request`, `read_token_response`; no I/O here |
| `unsecuredLoginStringClaim_sub` | an unsigned token, for tests, as with Kafka |

By default the server accepts unsecured tokens (`alg: none`), as Kafka's does. These are only for tests. `signed_tokens` verifies
tokens signed by an identity provider.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode

from tidelog.errors import AuthenticationError
from tidelog.security.secret import Secret

OAUTHBEARER: Final = "OAUTHBEARER"

MAX_TOKEN_RESPONSE_BYTES: Final = 1 << 16
UNSECURED_LIFETIME_S: Final = 3600
CLOCK_SKEW_S: Final = 0

_HEADER = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,")
_PAIR = re.compile(r"[A-Za-z]+=[\x21-\x7e \t\r\n]+")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-\w.~+/]+=*)", re.ASCII)


Judge = Callable[[str], tuple[str, float] | None]


class OAuthBearerClient:
    """The client side."""

    mechanism = OAUTHBEARER

    def __init__(self, token: Secret) -> None:
        self._token = token
        self._refused: str | None = None

    def first(self) -> bytes:
        """Return the message with the token."""
        return f"n,,\x01auth=Bearer {self._token.reveal()}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        r"""Return `\x01` for an error challenge, None for an empty one. Raises AuthenticationError for a second challenge."""
        if not challenge:
            return None
        if self._refused is not None:
            raise AuthenticationError(f"{OAUTHBEARER}: the server refused the token", found=self._refused)
        self._refused = repr(challenge[:200].decode("utf-8", "replace"))
        return b"\x01"


class OAuthBearerServer:
    """The server side. `now_s` is the current time. `expires_s` is the token's expiry, once the exchange is complete.

    `judge` returns a token's user and expiry, or None to reject the token. Without `judge`, unsecured tokens are accepted.
    """

    mechanism = OAUTHBEARER

    def __init__(self, now_s: Callable[[], float], judge: Judge | None = None) -> None:
        self.name: str | None = None
        self.is_complete = False
        self.expires_s: float | None = None
        self._now_s = now_s
        self._judge = judge or self._unsecured
        self._is_refused = False

    @property
    def seconds_left(self) -> float:
        """The seconds until the token expires; infinity if it does not expire."""
        return float("inf") if self.expires_s is None else self.expires_s - self._now_s()

    def evaluate(self, response: bytes) -> bytes:
        """Return the response to a client's message: empty, or the reason for rejecting the token. Raises AuthenticationError."""
        if self._is_refused or self.is_complete:
            raise AuthenticationError('{"status":"invalid_token"}')
        token, authzid = _first_message(response.decode("utf-8", "replace"))
        found = self._judge(token)
        if found is None:
            self._is_refused = True
            return b'{"status":"invalid_token"}'
        name, expires = found
        if authzid and authzid != name:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from the token's"
            )
        self.name, self.expires_s, self.is_complete = name, expires, True
        return b""

    def _unsecured(self, token: str) -> tuple[str, float] | None:
        claims = _claims(token)
        name, expires = claims.get("sub"), claims.get("exp")
        if not isinstance(name, str) or not name or not isinstance(expires, int | float):
            return None
        return (name, as_time(expires)) if expires > self._now_s() - CLOCK_SKEW_S else None


def _first_message(text: str) -> tuple[str, str | None]:
    """Return the token in a client's first message, and the requested user, None if the message names none. Raises
    AuthenticationError.

    Takes time linear in the message's size, because the client has not authenticated yet. If several pairs have the same name,
    the last one counts, as in Kafka.
    """
    header, *pairs = text.split("\x01")
    found = _HEADER.fullmatch(header)
    if found is None or pairs[-2:] != ["", ""] or not all(map(_PAIR.fullmatch, pairs[:-2])):
        raise AuthenticationError("Invalid OAUTHBEARER client first message")
    auth = dict(pair.split("=", 1) for pair in pairs[:-2]).get("auth")
    if auth is None:
        raise AuthenticationError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    match = _AUTH.fullmatch(auth)
    if match is None:
        raise AuthenticationError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if match["scheme"].lower() != "bearer":
        raise AuthenticationError("Invalid scheme in OAUTHBEARER client first message")
    return match["token"], found["authzid"]


def unsecured_token(name: str, now_s: float, lifetime_s: int = UNSECURED_LIFETIME_S, scope: str | None = None) -> Secret:
    """Return an unsigned token like those that Kafka's unsecured login creates."""
    claims: dict[str, Any] = {"sub": name, "iat": now_s, "exp": now_s + lifetime_s}
    if scope:
        claims["scope"] = scope
    return Secret(f"{_base64(json.dumps({'alg': 'none'}))}.{_base64(json.dumps(claims))}.")


def as_time(claimed: float) -> float:
    """Return a token's time claim in epoch seconds. A number that is too large counts as "never"."""
    try:
        return float(claimed)
    except OverflowError:
        return float("inf")


def without_user(url: str) -> str:
    """Return a URL without secrets, that is, without user name, password, and everything after `?`."""
    scheme, separator, rest = url.partition("://")
    place = rest.partition("?")[0]
    return f"{scheme}{separator}{place.rpartition('@')[2]}" if separator else url.rpartition("@")[2].partition("?")[0]


class TokenRequest(NamedTuple):
    """The POST request to a token endpoint."""

    url: str
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"TokenRequest({without_user(self.url)!r})"


def token_request(url: str, client_id: str, client_secret: Secret, scope: str | None) -> TokenRequest:
    """Return the request for a token with a client's credentials."""
    credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret.reveal())}".encode()
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    headers = {
        "Authorization": f"Basic {base64.b64encode(credentials).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    return TokenRequest(url, headers, urlencode(form).encode())


def read_token_response(url: str, body: bytes) -> tuple[Secret, float]:
    """Return the token in an endpoint's response, and its lifetime in seconds, 0 if unstated.

    Raises AuthenticationError, whose text contains no part of the response.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token:
        raise AuthenticationError("the token endpoint's response has no access_token", path=without_user(url))
    lifetime = found.get("expires_in")
    return Secret(token), float(lifetime) if isinstance(lifetime, int | float) and lifetime > 0 else 0.0


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    try:
        if len(parts) != 3 or parts[2] or json.loads(_unbase64(parts[0])).get("alg") != "none":
            return {}
        claims = json.loads(_unbase64(parts[1]))
    except (ValueError, AttributeError, RecursionError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _unbase64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
