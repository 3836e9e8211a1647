"""SCRAM challenges for unknown users: a salt and iterations, as if the user existed.

A challenge reveals salt and iterations before the client proves the password. So an unknown user's salt and iterations must look
like a known user's, and must always be the same: on each listener, on each broker of a cluster, and after a restart.

| | |
|---|---|
| the form | a known credential's iterations, salt length and salt alphabet (Kafka's tools use base 36) |
| the salt | derived from the name and from a key that all brokers have: the server key of the first known user by name |

Only that first user could recognize derived salts. When that user's password changes, the derived salts change.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tidelog.security.scram import DEFAULT_ITERATIONS, HASHES, ScramCredential

BASE_36_BITS: Final = 130
"""The number of bits in the salts that Kafka's tools make: numbers in base 36."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class KnownUser(NamedTuple):
    """A user and the stored credential."""

    name: str
    mechanism: str
    credential: ScramCredential


class ScramDisguise:
    """Derives fake credentials for unknown users. `known` must return the same known users on every broker."""

    def __init__(self, known: Callable[[], Iterable[KnownUser]]) -> None:
        self._known = known
        self._own_key = secrets.token_bytes(64)

    def credential(self, mechanism: str, name: str) -> ScramCredential:
        """Return a fake credential, which no password matches. A name always gets the same salt and iterations."""
        known = list(self._known())
        first = min(known, default=None, key=lambda one: one[:2])
        key = self._own_key if first is None else first.credential.server_key
        forms = {_form(one.credential) for one in known if one.mechanism == mechanism} or {(DEFAULT_ITERATIONS, 0)}
        made = hmac.digest(key, f"tidelog:{mechanism}:{name}".encode(), "sha512")
        # Rendezvous hashing: an unknown name keeps its form when users are added.
        iterations, length = max(forms, key=lambda form: hmac.digest(made, repr(form).encode(), "sha256"))
        size = int(HASHES[mechanism].removeprefix("sha")) // 8
        return ScramCredential(_salt(made, length), secrets.token_bytes(size), secrets.token_bytes(size), iterations)


def _form(credential: ScramCredential) -> tuple[int, int]:
    salt = credential.salt
    return credential.iterations, 0 if salt.isalnum() and salt == salt.lower() else len(salt)


def _salt(made: bytes, length: int) -> bytes:
    if length:
        stretched = made
        while len(stretched) < length:
            stretched += hmac.digest(made, stretched, "sha512")
        return stretched[:length]
    number = int.from_bytes(made[-17:]) >> (17 * 8 - BASE_36_BITS)
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text.encode()
