"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677; KIP-84): client and server side, without I/O.

| who | sends |
|---|---|
| client | `n,,n=user,r=nonce` |
| server | `r=nonce+its own,s=salt,i=iterations` |
| client | `c=biws,r=…,p=proof`: the client proves that it knows the password or its salted form |
| server | `v=signature`: the server proves that it knows the stored keys |

A server stores a `ScramCredential`: salted keys, which neither reveal the password nor suffice to authenticate. For an unknown
user the server continues with a salt derived from the name, and rejects the proof. A client therefore cannot tell unknown users
from wrong passwords. Kafka instead rejects an unknown user's first message. As in Kafka, there is no channel binding, and names
and passwords are not normalized: they are plain UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.errors import AuthenticationError
from tidelog.security.secret import Secret

MIN_ITERATIONS: Final = 4096
"""The minimum number of iterations, as in Kafka."""

DEFAULT_ITERATIONS: Final = 4096

MAX_ITERATIONS: Final = 16384
"""The maximum number of iterations of a stored credential, as in Kafka."""

MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""The largest number of iterations that a client accepts from a server. They take about a second."""

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

SCRAM_IDS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Numbers of the mechanisms in Kafka's metadata and requests (KIP-554)."""

_MAX_NAME = 1024
MAX_DISGUISED_NAME: Final = 255
"""The longest unknown name that gets a disguised challenge. Longer names are refused at once, as Kafka refuses all unknown names.
"""
_CLIENT_FIRST = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?)")
_SERVER_FIRST = re.compile(r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>\d{1,9})(?:,.*)?")
_CLIENT_FINAL = re.compile(
    r"(?P<without>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FINAL = re.compile(r"(?:e=(?P<error>[^,]*)|v=(?P<signature>[A-Za-z0-9+/=]+))(?:,.*)?")
_BAD_ESCAPE = re.compile(r"=(?!2C|3D)")

WRONG_CREDENTIALS = "invalid credentials with SASL mechanism"


class ScramCredential(NamedTuple):
    """A user's credential as the server stores it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"


def salted_password(mechanism: str, password: Secret, salt: bytes, iterations: int) -> bytes:
    """Return the salted password (PBKDF2). This takes some milliseconds of processor time."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.reveal().encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a salted password."""
    name = HASHES[mechanism]
    stored_key = hashlib.new(name, _mac(name, salted, b"Client Key")).digest()
    return ScramCredential(salt, stored_key, _mac(name, salted, b"Server Key"), iterations)


def new_credential(mechanism: str, password: Secret, iterations: int = DEFAULT_ITERATIONS) -> ScramCredential:
    """Return a credential for a password, with a new random salt."""
    salt = secrets.token_bytes(24)
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


class ScramClient:
    """The client side. Call `first`, then `respond` to each challenge until it returns None."""

    def __init__(
        self, mechanism: str, username: str, password: Secret, *, token_auth: bool = False, nonce: str | None = None
    ) -> None:
        self.mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}{',tokenauth=true' if token_auth else ''}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, None after the last challenge. Raises AuthenticationError if the server refuses, or
        cannot prove that it knows the keys.
        """
        text = challenge.decode("utf-8", "replace")
        if self._signature is not None:
            self._verify(text, self._signature)
            return None
        match = _SERVER_FIRST.fullmatch(text)
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise AuthenticationError(f"{self.mechanism}: the message is not a server's challenge", found=_error_of(text))
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise AuthenticationError(
                f"{self.mechanism}: the server's number of iterations is out of range",
                found=iterations,
                expected=f"{MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS}",
            )
        salted = salted_password(self.mechanism, self._password, _decoded(match["salt"]), iterations)
        client_key = _mac(self._hash, salted, b"Client Key")
        without_proof = f"c=biws,r={match['nonce']}"
        authenticated = f"{self._first_bare},{text},{without_proof}".encode()
        proof = _xor(client_key, _mac(self._hash, hashlib.new(self._hash, client_key).digest(), authenticated))
        self._signature = _mac(self._hash, _mac(self._hash, salted, b"Server Key"), authenticated)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, text: str, signature: bytes) -> None:
        match = _SERVER_FINAL.fullmatch(text)
        if match is None or match["error"] is not None:
            raise AuthenticationError(f"{self.mechanism}: the server refused the authentication", found=_error_of(text))
        if not hmac.compare_digest(_decoded(match["signature"]), signature):
            raise AuthenticationError(
                f"{self.mechanism}: the server's signature is wrong, so it may not be the broker that has the user's credentials"
            )


class ScramServer:
    """The server side. `find` returns a user's credential, None for an unknown user.

    Pass the client's messages to `evaluate`. `name` is the user's name once the exchange is complete. `disguise` returns a
    substitute for an unknown user's credential. It is called for all users, so that the response time does not reveal which users
    exist.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        disguise: Callable[[str], ScramCredential],
        *,
        nonce: str | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.name: str | None = None
        self.is_complete = False
        self._hash = HASHES[mechanism]
        self._find = find
        self._disguise = disguise
        self._own_nonce = nonce or secrets.token_urlsafe(24)
        self._credential: ScramCredential | None = None
        self._is_known = False
        self._nonce = ""
        self._so_far = ""
        self._user = ""

    def evaluate(self, response: bytes) -> bytes:
        """Return the response to a client's message. Raises AuthenticationError."""
        try:
            text = response.decode()
        except UnicodeDecodeError:
            raise self._wrong_message() from None
        if self.is_complete:
            raise self._wrong_message()
        return self._challenge(text) if self._credential is None else self._judge(text, self._credential)

    def _challenge(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None or len(match["name"]) > _MAX_NAME or _BAD_ESCAPE.search(match["name"]):
            raise self._wrong_message()
        self._user = match["name"].replace("=2C", ",").replace("=3D", "=")
        if match["authzid"] and match["authzid"].replace("=2C", ",").replace("=3D", "=") != self._user:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        found, disguise = self._find(self._user), self._disguise(self._user)
        self._is_known = found is not None
        if found is None and len(self._user) > MAX_DISGUISED_NAME:
            raise self._wrong_credentials()
        self._credential = found or disguise
        self._nonce = match["nonce"] + self._own_nonce
        salt = base64.b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._so_far = f"{match['bare']},{challenge}"
        return challenge.encode()

    def _judge(self, text: str, credential: ScramCredential) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        # librdkafka before 2.8 repeats its own nonce. As in Kafka, only the end of the nonce is compared.
        if match is None or not match["nonce"].endswith(self._nonce) or not _decoded(match["binding"]).startswith(b"n,"):
            raise self._wrong_message()
        authenticated = f"{self._so_far},{match['without']}".encode()
        proof = _decoded(match["proof"])
        signature = _mac(self._hash, credential.stored_key, authenticated)
        client_key = _xor(proof, signature) if len(proof) == len(signature) else b""
        is_right = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if not (is_right and self._is_known):
            raise self._wrong_credentials()
        self.is_complete = True
        self.name = self._user
        return b"v=" + base64.b64encode(_mac(self._hash, credential.server_key, authenticated))

    def _wrong_credentials(self) -> AuthenticationError:
        return AuthenticationError(f"Authentication failed during authentication due to {WRONG_CREDENTIALS} {self.mechanism}")

    def _wrong_message(self) -> AuthenticationError:
        return AuthenticationError(f"Invalid {self.mechanism} message")


def _mac(hash_name: str, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, hash_name)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _error_of(text: str) -> str:
    """Return the server's error text, shortened. Nothing else in the server's message is printed."""
    return repr(text[2:102]) if text.startswith("e=") else "not a SCRAM message"
