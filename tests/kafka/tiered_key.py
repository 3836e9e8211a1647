"""The RSA key of the golden segments of Aiven's plugin. The repository holds no key: this one is computed, always the same."""

from __future__ import annotations

import functools
import hashlib
from typing import Any

BITS = 1024
DELTAS = {"p": 898, "q": 252}
"""How far the next prime is from the number that a name's hashes give."""


@functools.cache
def key() -> Any:
    """Return the private key, of the library `cryptography`."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    p, q = (_start(name) + delta for name, delta in DELTAS.items())
    exponent = 65537
    private = pow(exponent, -1, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        p, q, private, private % (p - 1), private % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(exponent, p * q)
    )
    return numbers.private_key()


def private_pem() -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # type: ignore[no-any-return]


def public_pem() -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[no-any-return]


def _start(name: str) -> int:
    pieces = (hashlib.sha512(f"tidelog golden {name} {number}".encode()).digest() for number in range(BITS // 512))
    return int.from_bytes(b"".join(pieces), "big") | 3 << (BITS - 2) | 1
