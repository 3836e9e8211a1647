"""Sends requests to identity providers over HTTPS: for tokens with client credentials, and for the keys that verify tokens.

Redirects are rejected, so that secrets are sent to no other server, and keys come from no other server.
"""

from __future__ import annotations

import urllib.request
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from tidelog.errors import AuthenticationError
from tidelog.security.client_config import OAuthSettings
from tidelog.security.oauth_bearer import MAX_TOKEN_RESPONSE_BYTES, read_token_response, token_request, without_user
from tidelog.security.secret import Secret

TIMEOUT_S: Final = 10.0
MAX_KEYS_BYTES: Final = 1 << 20


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch_token(oauth: OAuthSettings) -> tuple[Secret, float]:
    """Return a token and its lifetime in seconds, 0 if unstated. Raises AuthenticationError."""
    assert oauth.url is not None
    wanted = token_request(oauth.url, oauth.client_id, oauth.client_secret, oauth.scope)
    request = urllib.request.Request(wanted.url, wanted.body, wanted.headers, method="POST")
    return read_token_response(oauth.url, _answer(request, oauth.url, "the token endpoint", MAX_TOKEN_RESPONSE_BYTES))


def fetch_keys(url: str) -> bytes:
    """Return a key set's bytes, from `https://…` or a file (`file:///…`). Raises AuthenticationError."""
    what = "the key set (JWKS)"
    if not url.startswith("file://"):
        return _answer(urllib.request.Request(url), url, what, MAX_KEYS_BYTES)
    try:
        with open(unquote(urlsplit(url).path), "rb") as file:  # noqa: PTH123
            return file.read(MAX_KEYS_BYTES)
    except OSError as error:
        raise AuthenticationError(f"{what} cannot be read: {error.strerror}", path=url) from None


def _answer(request: urllib.request.Request, url: str, what: str, most: int) -> bytes:
    place = without_user(url)
    try:
        with urllib.request.build_opener(_NoRedirection).open(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read(most))
    except HTTPError as error:
        with error:
            raise AuthenticationError(f"{what} refused the request", path=place, found=f"HTTP status {error.code}") from None
    except (OSError, ValueError) as error:
        # urllib's other errors, for example about addresses, contain the whole URL.
        reason = getattr(error, "reason", None) or type(error).__name__
        raise AuthenticationError(f"{what} cannot be reached: {reason}", path=place) from None
