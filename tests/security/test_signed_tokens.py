"""Tokens that an identity provider has signed: which are taken, by which keys, and how keys are read again."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.patience import PATIENCE_S
from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.security import signed_tokens
from tidelog.security.oauth_bearer import OAuthBearerServer, unsecured_token
from tidelog.security.signed_tokens import SignedTokens, TokenRules, token_rules
from tidelog.security.token_endpoint import fetch_keys

jwt = pytest.importorskip("jwt", reason="needs the extra oauth")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec", reason="needs the extra oauth")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization", reason="needs the extra oauth")
rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa", reason="needs the extra oauth")

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
RULES = TokenRules(url="file:///keys", audiences=("tides", "others"), issuer="https://idp.example", skew_s=0)
KEYS = {
    "rsa": ("RS256", rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "ec": ("ES256", ec.generate_private_key(ec.SECP256R1())),
    "new": ("ES256", ec.generate_private_key(ec.SECP256R1())),
}


def key_set(*names: str) -> bytes:
    keys = []
    for name in names:
        algorithm, key = KEYS[name]
        one = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
        keys.append(one | {"kid": name, "use": "sig"})
    return json.dumps({"keys": keys}).encode()


def token(key: str = "rsa", *, kid: str | None = "", algorithm: str = "", **claims: Any) -> str:
    now = time.time()
    said = {"sub": "alice", "aud": "tides", "iss": RULES.issuer, "iat": now, "exp": now + 600} | claims
    said = {name: value for name, value in said.items() if value is not None}
    headers = {} if kid is None else {"kid": kid or key}
    return str(jwt.encode(said, KEYS[key][1], algorithm or KEYS[key][0], headers))


def tokens(read: Callable[[str], bytes] = lambda url: key_set("rsa", "ec"), rules: TokenRules = RULES) -> SignedTokens:
    return SignedTokens(rules, read)


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_right_ones(key: str) -> None:
    end = time.time() + 600
    assert tokens().judge(token(key, exp=end)) == ("alice", float(end))
    assert tokens().judge(token(key, kid=None, aud=["x", "others"], exp=end)) == ("alice", float(end))
    server = OAuthBearerServer(time.time, tokens().judge)
    assert server.evaluate(f"n,,\x01auth=Bearer {token(key)}\x01\x01".encode()) == b""
    assert (server.name, server.is_complete) == ("alice", True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "new", "kid": "ec"},
        {"key": "new", "kid": None},
        {"key": "new"},
        {"aud": "nobody"},
        {"aud": None},
        {"iss": "https://other.example"},
        {"exp": 1.0},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"sub": 7},
        {"nbf": 4e9},
    ],
    ids=str,
)
def test_wrong_ones(wrong: dict[str, Any]) -> None:
    assert tokens().judge(token(**wrong)) is None


def test_forged_ones() -> None:
    """No signature, or one by a key that everybody has: the public one."""
    now = time.time()
    claims = {"sub": "alice", "aud": "tides", "iss": RULES.issuer, "iat": now, "exp": now + 600}
    assert tokens().judge(unsecured_token("alice", now).reveal()) is None
    assert tokens().judge(jwt.encode(claims, None, "none", {"kid": "rsa"})) is None
    public = KEYS["rsa"][1].public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "HS256", "kid": "rsa"}, claims)]
    for key in (public, public.rstrip(), key_set("rsa")):
        signature = hmac.digest(key, b".".join(parts), "sha256")
        assert tokens().judge(b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()) is None
    right = token()
    for text in ("", ".", "..", "a.b.c", right[:-4], right.replace(".", "..", 1), "é" + right, right + "=" * 9):
        assert tokens().judge(text) is None


def test_keys_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key counts once it was read; an endpoint that fails leaves the old ones."""
    monkeypatch.setattr(signed_tokens, "HURRY_S", -1.0)
    answers = [key_set("rsa"), b"nonsense", key_set("rsa", "new")]
    judged = tokens(lambda url: answers.pop(0) if len(answers) > 1 else answers[0])
    deadline = time.monotonic() + PATIENCE_S
    while judged.judge(token("new")) is None:
        assert judged.judge(token("rsa")) is not None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_rules(tmp_path: Path) -> None:
    given = {
        "sasl.oauthbearer.jwks.endpoint.url": "https://idp.example/keys",
        "sasl.oauthbearer.expected.audience": "a, b",
        "sasl.oauthbearer.clock.skew.seconds": "7",
    }
    assert token_rules(lambda name: given.get(name, "")) == TokenRules(
        url="https://idp.example/keys", audiences=("a", "b"), skew_s=7
    )
    assert token_rules(lambda name: "") is None
    for name, value in (("sasl.oauthbearer.jwks.endpoint.url", "ftp://x"), ("sasl.oauthbearer.clock.skew.seconds", "x")):
        with pytest.raises(InvalidArgumentError, match=name):
            token_rules(lambda one, name=name, value=value: (given | {name: value}).get(one, ""))  # type: ignore[misc]
    for text in (b"", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "YWJj"}]}'):
        with pytest.raises(InvalidArgumentError, match="JWKS"):
            tokens(lambda url, text=text: text)  # type: ignore[misc]
    with pytest.raises(AuthenticationError, match="cannot be read"):
        fetch_keys((tmp_path / "none").as_uri())
    with pytest.raises(AuthenticationError, match="cannot be reached"):
        fetch_keys("http://127.0.0.1:1/keys")


def test_a_listener(tmp_path: Path) -> None:
    """As Kafka's `OAuthBearerValidatorCallbackHandler` is configured."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set("ec"))
    prefix = "listener.name.sasl_plaintext.oauthbearer.sasl"
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
        f"{prefix}.server.callback.handler.class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "tides",
    }
    with tidelog.Broker(tmp_path / "data", **given) as broker:
        address = f"127.0.0.1:{broker._listeners[0].port}"

        def connect(text: str) -> None:
            config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: text}
            with tidelog.connect(address, **config) as client:
                client.topics()

        connect(token("ec"))
        for wrong in (token("new", kid="ec"), token("ec", aud="x"), unsecured_token("alice", time.time()).reveal()):
            with pytest.raises(AuthenticationError):
                connect(wrong)
    del given["sasl.oauthbearer.jwks.endpoint.url"]
    with pytest.raises(InvalidArgumentError, match="which is not supported here"):
        tidelog.Broker(tmp_path / "data", **given).start()
