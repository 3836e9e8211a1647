"""An identity provider for tests: it signs OAUTHBEARER tokens, and its public keys are in a file (JWKS)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

AUDIENCE = "tides"
ISSUER = "https://idp.example"
KEYS_FILE = "jwks.json"
_ALGORITHM = "ES256"


class IdentityProvider:
    """A new key pair. The public key is in the file `KEYS_FILE` in a folder, the private key only in memory."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = jwt.get_algorithm_by_name(_ALGORITHM).to_jwk(self._key.public_key(), as_dict=True)
        assert isinstance(public, dict)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / KEYS_FILE).write_text(json.dumps({"keys": [public | {"kid": "first", "use": "sig", "alg": _ALGORITHM}]}))

    def token(self, name: str, **claims: Any) -> str:
        """Return a user's token, valid for an hour; claims that are None are left out."""
        now = int(time.time())
        said = {"sub": name, "scope": "all", "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + 3600} | claims
        return jwt.encode(
            {key: value for key, value in said.items() if value is not None}, self._key, _ALGORITHM, {"kid": "first"}
        )
