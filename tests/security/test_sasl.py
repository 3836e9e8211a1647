"""SASL's mechanisms, both halves against each other, and against what their documents print."""

from __future__ import annotations

import base64
import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import AuthenticationError
from tidelog.security.oauth_bearer import (
    OAuthBearerClient,
    OAuthBearerServer,
    read_token_response,
    token_request,
    unsecured_token,
)
from tidelog.security.plain import PlainClient, PlainServer
from tidelog.security.scram import (
    HASHES,
    ScramClient,
    ScramCredential,
    ScramServer,
    credential_of,
    new_credential,
    salted_password,
)
from tidelog.security.scram_disguise import KnownUser, ScramDisguise
from tidelog.security.secret import Secret

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20)
CREDENTIALS = {
    (mechanism, name): new_credential(mechanism, Secret(name[::-1] + "!"))
    for mechanism in HASHES
    for name in ("ann", "a,=b", "ß,")
}
DISGUISE = {
    mechanism: partial(
        ScramDisguise([KnownUser(name, of, one) for (of, name), one in CREDENTIALS.items()].copy).credential, mechanism
    )
    for mechanism in HASHES
}


def talk(client: ScramClient, server: ScramServer) -> None:
    message: bytes | None = client.first()
    while message is not None:
        message = client.respond(server.evaluate(message))


def server_of(mechanism: str, **more: str) -> ScramServer:
    return ScramServer(mechanism, lambda name: CREDENTIALS.get((mechanism, name)), DISGUISE[mechanism], **more)


@pytest.mark.parametrize(("mechanism", "name"), CREDENTIALS)
def test_scram(mechanism: str, name: str) -> None:
    server = server_of(mechanism)
    talk(ScramClient(mechanism, name, Secret(name[::-1] + "!")), server)
    assert (server.is_complete, server.name) == (True, name)


def test_scram_of_the_document() -> None:
    """RFC 7677, section 3."""
    server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    client = ScramClient("SCRAM-SHA-256", "user", Secret("pencil"), nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = f"r=rOprNGfwEbeRWgbNEkqO{server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = client.respond(challenge)
    assert final == (f"c=biws,r=rOprNGfwEbeRWgbNEkqO{server_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode())
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    salted = salted_password("SCRAM-SHA-256", Secret("pencil"), salt, 4096)
    known = credential_of("SCRAM-SHA-256", salted, salt, 4096)
    server = ScramServer("SCRAM-SHA-256", lambda _: known, DISGUISE["SCRAM-SHA-256"], nonce=server_nonce)
    assert server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == challenge
    assert server.evaluate(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_refuses_alike(mechanism: str) -> None:
    """A name that is not known is asked for its proof like one that is, with the same salt each time; the words are the same."""

    def said(name: str, password: str) -> tuple[str, str]:
        server = server_of(mechanism, nonce="S" * 32)
        client = ScramClient(mechanism, name, Secret(password), nonce="C" * 32)
        challenge = server.evaluate(client.first())
        final = client.respond(challenge)
        assert final is not None
        with pytest.raises(AuthenticationError) as caught:
            server.evaluate(final)
        assert not server.is_complete
        assert server.name is None
        return challenge.decode(), str(caught.value)

    nobody, again, ann = said("nobody", "x"), said("nobody", "y"), said("ann", "x")
    assert nobody == again
    assert nobody[1] == ann[1]
    assert len(nobody[0]) == len(ann[0])


def test_scram_of_a_server_that_knows_nothing() -> None:
    mechanism = "SCRAM-SHA-256"
    client = ScramClient(mechanism, "ann", Secret("nna!"))
    known = CREDENTIALS[mechanism, "ann"]
    server = ScramServer(mechanism, lambda _: ScramCredential(known.salt, known.stored_key, b"x" * 32, 4096), DISGUISE[mechanism])
    with pytest.raises(AuthenticationError, match="the server's signature is wrong"):
        talk(client, server)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"e=other-error",
        b"r=x,s=AAAA,i=4096",
        b"r=C,s=AAAA,i=4096",
        b"r=Cx,s=AAAA,i=4095",
        b"r=Cx,s=AAAA,i=999999999",
        b"\xff",
    ],
)
def test_a_challenge_that_is_none(challenge: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "ann", Secret("p"), nonce="C")
    client.first()
    with pytest.raises(AuthenticationError):
        client.respond(challenge)


@given(
    st.sampled_from(sorted(HASHES)),
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [b"n,,n=ann,r=C", b"n,,n==2C,r=C", b"n,,n==2D,r=C", b"n,a=bob,n=ann,r=C", b"c=biws,r=CS,p=AAAA", b"c=,r=CS,p="]
        ),
        max_size=4,
    ),
)
def test_scram_of_any_bytes(mechanism: str, messages: list[bytes]) -> None:
    server = server_of(mechanism, nonce="S")
    for message in messages:
        try:
            server.evaluate(message)
        except AuthenticationError:
            break
    assert not server.is_complete


def test_plain() -> None:
    users = {"ann": Secret("secret"), "bob": Secret("Ünïcode")}
    server = PlainServer(users)
    assert server.evaluate(PlainClient("bob", users["bob"]).first()) == b""
    assert (server.name, server.is_complete) == ("bob", True)
    refusals = set()
    for message in (
        b"\0ann\0wrong",
        b"\0nobody\0secret",
        b"\0nobody\0\0",
        b"\0\0x",
        b"\0ann\0",
        b"bob\0ann\0secret",
        b"",
        b"\xff\0a\0b",
    ):
        server = PlainServer(users)
        with pytest.raises(AuthenticationError) as caught:
            server.evaluate(message)
        assert server.name is None
        refusals.add(str(caught.value))
        if message[:1] == b"\0" and message.count(b"\0") == 2 and b"wrong" in message:
            first = str(caught.value)
        if message == b"\0nobody\0secret":
            assert str(caught.value) == first, "who is known is not said"
    assert not any("secret" in one for one in refusals)


@given(NAMES, NAMES)
def test_plain_of_any_name(name: str, password: str) -> None:
    server = PlainServer({name: Secret(password)})
    server.evaluate(PlainClient(name, Secret(password)).first())
    assert server.name == name


def test_oauth_bearer() -> None:
    server = OAuthBearerServer(lambda: 1000.0)
    client = OAuthBearerClient(unsecured_token("ann", 990.0, 60))
    assert client.respond(server.evaluate(client.first())) is None
    assert (server.name, server.is_complete, server.expires_s) == ("ann", True, 1050.0)
    for token in (unsecured_token("ann", 900.0, 60), unsecured_token("", 990.0, 60), Secret("a.b."), Secret("x")):
        server = OAuthBearerServer(lambda: 1000.0)
        client = OAuthBearerClient(token)
        challenge = server.evaluate(client.first())
        assert json.loads(challenge)["status"] == "invalid_token"
        answer = client.respond(challenge)
        assert answer == b"\x01"
        with pytest.raises(AuthenticationError):
            server.evaluate(answer)
        assert not server.is_complete


def test_oauth_bearer_of_other_clients() -> None:
    """Messages that Kafka's `OAuthBearerClientInitialResponse` takes, and some that it does not."""
    token = unsecured_token("ann", 990.0, 60).reveal()
    taken = (
        f"n,a=ann,\x01auth=Bearer {token}\x01\x01",
        f"n,,\x01auth=bEARER   {token}\x01\x01",
        f"n,,\x01host=a.example\x01auth=Bearer {token}\x01port=9092\x01\x01",
        f"n,,\x01auth=Bearer x\x01auth=Bearer {token}\x01\x01",
    )
    for text in taken:
        server = OAuthBearerServer(lambda: 1000.0)
        assert server.evaluate(text.encode()) == b"", text
        assert server.name == "ann"
    refused = (
        "",
        "n,,",
        "n,,\x01\x01",
        "n,,\x01host=a.example\x01\x01",
        f"n,,auth=Bearer {token}\x01\x01",
        f"n,,\x01auth=Bearer {token}\x01",
        f"n,,\x01auth=Bearer {token}\x01\x01\x01",
        f"n,,\x01auth=Basic {token}\x01\x01",
        f"n,,\x01auth=Bearer {token} \x01\x01",
        f"n,,\x01auth=Bearer {token}\x01port=\x01\x01",
        f"n,,\x01auth=Bearer {token}\x01x1=y\x01\x01",
        f"n,,\x01auth=Bearer {token}\x01x=\xe9\x01\x01",
        f"y,,\x01auth=Bearer {token}\x01\x01",
        f"n,a=bob,\x01auth=Bearer {token}\x01\x01",
    )
    for text in refused:
        server = OAuthBearerServer(lambda: 1000.0)
        with pytest.raises(AuthenticationError):
            server.evaluate(text.encode())
        assert not server.is_complete


def test_a_signed_token_is_refused() -> None:
    """It is not looked at whether the signature is right: so it must not pass."""
    head, claims = (
        base64.urlsafe_b64encode(text).decode().rstrip("=") for text in (b'{"alg":"RS256"}', b'{"sub":"ann","exp":9e9}')
    )
    for token in (f"{head}.{claims}.c2ln", f"{head}.{claims}."):
        server = OAuthBearerServer(lambda: 1000.0)
        assert server.evaluate(OAuthBearerClient(Secret(token)).first()) != b""
        assert not server.is_complete


def test_a_token_endpoint() -> None:
    wanted = token_request("https://idp.example/token", "id", Secret("of-tests"), "a b")
    assert wanted.body == b"grant_type=client_credentials&scope=a+b"
    assert base64.b64decode(wanted.headers["Authorization"].removeprefix("Basic ")) == b"id:of-tests"
    assert "of-tests" not in repr(wanted)
    token, lifetime_s = read_token_response("u", b'{"access_token": "abc", "expires_in": 300}')
    assert (token.reveal(), lifetime_s) == ("abc", 300.0)
    for body in (b"", b"[]", b'{"access_token": 1}', b"{", b'"x"'):
        with pytest.raises(AuthenticationError):
            read_token_response("u", body)
