"""Decides which requests are allowed: they must have the token, come from a page of this server, and name this server.

| checked | refuses |
|---|---|
| method | all but GET and HEAD: the server is read-only |
| `Host` | names of other sites that resolve to this address (DNS rebinding); an IP address cannot be rebound |
| `Origin`, `Sec-Fetch-Site` | requests from pages of other sites, including other ports of this host |
| the cookie, or `Authorization: Bearer TOKEN` | other users of this machine |

The token is in the address that `tidelog ui` prints. A browser exchanges it once for a cookie, and then removes it from the
address bar. Every response has the headers `HEADERS`: a page of this server loads nothing from other hosts, runs no inline
script, cannot be framed, and is not stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = dict[str, Any]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """An ASGI application that refuses requests which fail these checks, and passes all others on. `names` are accepted in the
    `Host` header besides the loopback names. With `takes_addresses`, `Host` may be any IP address: for a server that listens on
    more than loopback.
    """

    def __init__(self, app: Any, *, port: int, token: str, names: Collection[str] = (), takes_addresses: bool = False) -> None:
        self._app = app
        self._port = port
        self._token = token
        self._names = {name.lower() for name in (*_LOOPBACK_NAMES, *names)}
        self._takes_addresses = takes_addresses
        # Browsers send a cookie to every port of a host, so its name has the port.
        self._cookie = f"tidelog-{port}"
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Refuse a request, or pass it to the application."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0].decode("latin-1").lower() not in HEADERS]
                message["headers"] = [*kept, *((name.encode(), value.encode()) for name, value in HEADERS.items())]
            await send(message)

        fields = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        refusal = self._refusal(scope, fields)
        if refusal is not None:
            await _answer(send_guarded, *refusal)
        elif scope["path"] == "/" and self._has_token(scope):
            await self._exchange(scope, send_guarded)
        elif not self._is_known(fields):
            text = "Open the address that tidelog ui printed, with its token. Each start of tidelog ui prints a new address.\n"
            await _answer(send_guarded, 403, text)
        else:
            await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, fields: list[tuple[str, str]]) -> tuple[int, str] | None:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "This server is read-only: only GET and HEAD are allowed.\n"
        hosts = [value for name, value in fields if name == "host"]
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return 403, "This server does not have that name. Open the address that tidelog ui has printed.\n"
        for name, value in fields:
            if name == "origin" and value.lower() != f"http://{hosts[0].lower()}":
                return 403, "Requests from other sites are refused.\n"
            if name == "sec-fetch-site" and value not in ("same-origin", "none"):
                return 403, "Requests from other sites are refused. Type or paste the address that tidelog ui has printed.\n"
        return None

    def _is_own(self, host: str) -> bool:
        name, colon, port = host.lower().rpartition(":")
        if not colon or port != str(self._port):
            return self._port == 80 and self._is_own(f"{host}:80") if not colon else False
        return name in self._names or (self._takes_addresses and _is_ip_address(name))

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in _parameters(scope) if name == "token"]
        return len(given) == 1 and _is_same(given[0], self._token)

    def _is_known(self, fields: Iterable[tuple[str, str]]) -> bool:
        for name, value in fields:
            if name == "authorization" and value.startswith("Bearer ") and _is_same(value[7:], self._token):
                return True
            if name == "cookie":
                for pair in value.split(";"):
                    key, _, given = pair.strip().partition("=")
                    if key == self._cookie and _is_same(given, self._session):
                        return True
        return False

    async def _exchange(self, scope: Scope, send: Callable[[dict[str, Any]], Any]) -> None:
        rest = urlencode([pair for pair in _parameters(scope) if pair[0] != "token"])
        cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 303, "", location=f"/?{rest}" if rest else "/", **{"set-cookie": cookie})


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _is_same(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


async def _answer(send: Callable[[dict[str, Any]], Any], status: int, text: str, **headers: str) -> None:
    data = text.encode()
    fields = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(data)), **headers}
    if status == 405:
        fields["allow"] = "GET, HEAD"
    listed = [(name.encode(), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": listed})
    await send({"type": "http.response.body", "body": data})
