r"""PLAIN (RFC 4616; KIP-43): `authorization id \0 user \0 password`, in one message. Client and server side, without I/O.

The password crosses the network unencrypted: use PLAIN only over TLS.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from tidelog.errors import AuthenticationError
from tidelog.security.secret import Secret

PLAIN: Final = "PLAIN"

WRONG: Final = "Authentication failed: Invalid username or password"


class PlainClient:
    """The client side."""

    mechanism = PLAIN

    def __init__(self, username: str, password: Secret) -> None:
        self._username = username
        self._password = password

    def first(self) -> bytes:
        """Return the only message."""
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None: the exchange has only one message."""
        return None


class PlainServer:
    """The server side; `users` maps names to passwords."""

    mechanism = PLAIN

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self.name: str | None = None
        self.is_complete = False
        self._users = users

    def evaluate(self, response: bytes) -> bytes:
        """Return the empty response if the credentials are right. Raises AuthenticationError if not, with the same text for an
        unknown user and a wrong password.
        """
        try:
            parts = response.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if self.is_complete or len(parts) != 3:
            raise AuthenticationError("Invalid SASL/PLAIN response: expected 3 tokens")
        authorization_id, name, password = parts
        if not name or not password:
            what = "username" if not name else "password"
            raise AuthenticationError(f"Authentication failed: {what} not specified")
        # For an unknown user a password is compared, too, so that time and text do not reveal which users exist.
        known = self._users.get(name)
        expected = known.reveal() if known is not None else "\0"
        if not hmac.compare_digest(expected.encode(), password.encode()):
            raise AuthenticationError(WRONG)
        if authorization_id not in ("", name):
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.name = name
        self.is_complete = True
        return b""
