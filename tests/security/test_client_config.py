"""Kafka's and librdkafka's properties of a client: what they mean, what is refused, and that no secret is shown."""

from __future__ import annotations

import copy
import logging
import pickle
import ssl
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import PASSWORD, Authority
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.settings.listener_security import ListenerSecurity
from tidelog.broker.settings.peer_security import peer_config
from tidelog.client.connections.addresses import config_of, parse_addresses, secured, with_config
from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.security.access import Access
from tidelog.security.client_config import OAuthSettings, check_names, client_config, dotted, shown
from tidelog.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from tidelog.security.secret import Secret
from tidelog.security.tls_context import ContextSource, client_context, server_context
from tidelog.security.tls_settings import TlsSettings, tls_settings
from tidelog.security.token_endpoint import fetch_token

HIDE = "hide-me-please"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.sign("client")
    return made


def test_a_secret() -> None:
    secret = Secret(HIDE)
    assert HIDE not in f"{secret} {secret!r} {secret:>40} {[secret]} {vars(Secret).keys()}"
    assert HIDE not in "%s %r" % (secret, secret)  # noqa: UP031
    assert pickle.loads(pickle.dumps(secret)) == secret == copy.deepcopy(secret)
    assert secret != Secret("other")
    assert secret != HIDE
    assert (bool(Secret("")), bool(secret)) == (False, True)


def test_two_spellings_of_one() -> None:
    java = client_config({**SASL, "sasl.jaas.config": f'{PLAIN_MODULE} required username="ann" password="{HIDE}";'})
    librdkafka = client_config(
        {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "ann", "sasl.password": HIDE}
    )
    assert java == librdkafka
    assert java.protocol == "SASL_PLAINTEXT"
    assert tls_settings({"ssl.truststore.location": "a", "ssl.keystore.location": "b"}) == tls_settings(
        {"ssl.ca.location": "a", "ssl.certificate.location": "b"}
    )


def test_nothing_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    key = f"-----BEGIN PRIVATE KEY----- {HIDE} -----END PRIVATE KEY-----"
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="ann" password="{HIDE}";',
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE----- x -----END CERTIFICATE-----",
        "ssl.key.password": HIDE,
    }
    config = client_config(properties)
    brokers = secured("localhost:9092", config)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("tidelog").warning("%s %r %s", brokers, config, [config])
    assert HIDE not in f"{config} {config!r} {brokers} {brokers!r} {[brokers]} {shown(properties)} {caplog.text}"
    assert repr(brokers) == "'localhost:9092'"
    again = pickle.loads(pickle.dumps(brokers))
    assert (again, config_of(again)) == (brokers, config)
    assert config_of(copy.deepcopy(brokers)) == config


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is invalid: found TLS"),
        ({"security.protocl": "SSL"}, "did you mean security.protocol"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is not supported: found GSSAPI"),
        (SASL, "sasl.username and sasl.password"),
        ({**SASL, "sasl.jaas.config": f"{SCRAM_MODULE} required username=a password={HIDE};"}, "not for PLAIN"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN_MODULE} required username=a password={HIDE}"}, "no semicolon"),
        ({**SASL, "sasl.jaas.config": f'{PLAIN_MODULE} required username=a password="{HIDE};'}, "a quote that does not end"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN_MODULE} required username {HIDE};"}, "an option has no value"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN_MODULE} {HIDE}=a username=b;"}, "no flag"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "allows no TLS version"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "names an unsupported cipher suite"),
        ({"security.protocol": "SSL", "ssl.keystore.key": HIDE}, "is not PEM text"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS", "ssl.truststore.location": "t.jks"}, "keytool -list -rfc"),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "k.p12"},
            "openssl pkcs12 -in k.p12",
        ),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs a token"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "https://"),
    ],
)
def test_what_is_refused(properties: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client_config(properties)
    assert said in str(caught.value)
    assert HIDE not in str(caught.value)


def test_others_properties() -> None:
    """A consumer's file has more than a connection's; where nothing else can be meant, a name that is none is refused."""
    assert (
        client_config({"group.id": "g", "acks": "all", "bootstrap.servers": "x:1", "ssl.provider": "SunJSSE"}).protocol
        == "PLAINTEXT"
    )
    with pytest.raises(InvalidArgumentError, match=r"group\.id"):
        check_names(["group.id"])
    assert dotted({"security_protocol": "SSL", "oauth_cb": len, "ssl.ca.location": "a"}).keys() == {
        "security.protocol",
        "oauth_cb",
        "ssl.ca.location",
    }
    with pytest.raises(
        InvalidArgumentError,
        match=r"different security protocols: found PLAINTEXT://a:1, expected security\.protocol=SSL",
    ):
        parse_addresses(with_config("PLAINTEXT://a:1", {"security_protocol": "SSL"}))
    assert parse_addresses(with_config("SSL://a:1", {"security_protocol": "SSL"}))[0].port == 1


QUOTED = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), QUOTED, max_size=4), st.sampled_from("\"'"))
def test_a_login_module(options: dict[str, str], quote: str) -> None:
    written = " ".join(
        f"{name}={quote}{value.translate({92: chr(92) * 2, ord(quote): chr(92) + quote})}{quote}"
        for name, value in options.items()
    )
    module = parse_jaas(f" {PLAIN_MODULE}  required // a remark\n {written} /* one; more */ ;")
    assert {name: value.reveal() for name, value in module.options.items()} == options
    assert module.name == PLAIN_MODULE


@given(st.text('abc="; \\/*\n', max_size=30))
def test_no_login_module(text: str) -> None:
    try:
        parse_jaas(text)
    except InvalidArgumentError:
        return


def test_contexts(authority: Authority, tmp_path: Path) -> None:
    client = authority.folder / "client.pem"
    context = client_context(tls_settings({"ssl.truststore.location": str(authority.ca), "ssl.keystore.location": str(client)}))
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert all("ECDHE" in one["name"] or one["name"].startswith("TLS_") for one in context.get_ciphers())
    assert context.options & ssl.OP_NO_RENEGOTIATION
    locked = authority.locked("client")
    server_context(tls_settings({"ssl.keystore.location": str(locked), "ssl.key.password": PASSWORD}))
    one = tls_settings({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256"})
    assert one.ciphers == "ECDHE-ECDSA-AES256-GCM-SHA384"
    client_context(one)
    assert tls_settings({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}).protocols == ("TLSv1.3",)
    chacha = tls_settings({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"})
    client_context(chacha)
    for wrong in ("", "wrong"):
        with pytest.raises(InvalidArgumentError, match=r"ssl.key.password does not decrypt the key"):
            server_context(tls_settings({"ssl.keystore.location": str(locked), "ssl.key.password": wrong}))
    for path, said in ((tmp_path / "none", "cannot read a certificate file"), (authority.ca, "not a certificate and its key")):
        with pytest.raises(InvalidArgumentError, match=said):
            server_context(TlsSettings(chain_file=str(path)))
    with pytest.raises(InvalidArgumentError, match=r"needs ssl\.keystore"):
        server_context(TlsSettings())
    with pytest.raises(InvalidArgumentError, match="PKCS12"):
        client_context(TlsSettings(chain_file=str(authority.pkcs12("client"))))
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed\0\0")
    with pytest.raises(InvalidArgumentError, match="keytool"):
        client_context(TlsSettings(trust_file=str(tmp_path / "jks")))


def test_a_context_is_made_again(authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes((authority.folder / "client.pem").read_bytes())
    source = ContextSource(TlsSettings(chain_file=str(file)), server_context)
    first = source.get()
    assert source.get() is first
    renewed = tmp_path / "new.pem"
    renewed.write_bytes(authority.sign("other").read_bytes())
    renewed.replace(file)
    assert source.get() is not first


def test_files_that_make_no_context_leave_the_old_one(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate is renewed by who writes one file after the other: meanwhile the key does not fit."""
    key, chain = tmp_path / "one.key", tmp_path / "one.crt"
    whole = {kind: (authority.folder / f"client.{kind}").read_bytes() for kind in ("key", "crt")}
    key.write_bytes(whole["key"])
    chain.write_bytes(whole["crt"])
    source = ContextSource(TlsSettings(chain_file=str(chain), key_file=str(key)), server_context)
    first = source.get()
    authority.sign("next")
    for path, broken in (
        (key, (authority.folder / "next.key").read_bytes()),
        (key, whole["key"][:100]),
        (key, b""),
        (chain, whole["crt"][:200]),
    ):
        before = path.read_bytes()
        caplog.clear()
        path.write_bytes(broken)
        assert source.get() is first
        assert source.get() is first
        assert [one.getMessage().partition(":")[0] for one in caplog.records] == [
            "the new certificates cannot be used, so the old ones stay in use"
        ]
        path.write_bytes(before + b"\n")
        assert source.get() is not first
        first = source.get()
    chain.unlink()
    assert source.get() is first
    key.write_bytes((authority.folder / "next.key").read_bytes())
    chain.write_bytes((authority.folder / "next.crt").read_bytes())
    assert source.get() is not first


SECRETS = st.text("abcdefghijkmnpqrstuvwxyz0123456789", min_size=10, max_size=20).map(lambda text: f"Zq{text}")
WRITTEN = (
    "{module} required username=ann password={secret};",
    '{module} required username="ann" password="{secret}";',
    '{module} required username="ann" password="{secret}" password="{secret}";',
    '{module} required user_ann="{secret}" unsecuredLoginLifetimeSeconds="{secret}" unsecuredLoginStringClaim_sub=a;',
    'required {module} username="ann" password="{secret}";',
    "{secret} required username=a password={secret};",
    "{secret}",
)


@given(
    SECRETS,
    st.sampled_from(WRITTEN),
    st.sampled_from([PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE]),
    st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", ""]),
    st.sampled_from(["SASL_PLAINTEXT", "SASL_SSL", "SSL"]),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["", '"', "'", ";", " ", "=", "\\", "//", "/*"])), max_size=3),
    st.dictionaries(
        st.sampled_from(
            [
                "ssl.keystore.key",
                "ssl.keystore.certificate.chain",
                "ssl.key.password",
                "ssl.key.pem",
                "ssl.keystore.password",
                "sasl.password",
                "sasl.oauthbearer.token.endpoint.url",
                "sasl.oauthbearer.client.secret",
            ]
        ),
        st.sampled_from(["{secret}", "-----BEGIN PRIVATE KEY----- {secret} -----END PRIVATE KEY-----"])
        | st.sampled_from(["https://ann:{secret}@host/token?key={secret}", "ann:{secret}@host"]),
        max_size=3,
    ),
)
def test_no_error_shows_a_secret(
    secret: str,
    written: str,
    module: str,
    mechanism: str,
    protocol: str,
    changes: list[tuple[int, str]],
    more: dict[str, str],
) -> None:
    """Whatever is wrong with a configuration: nothing that is said of it, or by it, holds what may be a password."""
    text = written.replace("{module}", module)
    for at, put in changes:
        if 0 <= at <= len(text) and "{secret}" not in (text[max(at - 9, 0) : at + 9]):
            text = text[:at] + put + text[at + 1 :]
    properties = {name: value.replace("{secret}", secret) for name, value in more.items()}
    properties |= {"security.protocol": protocol, "sasl.jaas.config": text.replace("{secret}", secret)}
    if mechanism:
        properties["sasl.mechanism"] = mechanism
    names = {f"listener.name.x.{name}": value for name, value in properties.items()}
    names |= {f"listener.name.x.{mechanism.lower()}.sasl.jaas.config": properties["sasl.jaas.config"]}
    names |= {"sasl.mechanism.inter.broker.protocol": mechanism, "sasl.enabled.mechanisms": mechanism or "PLAIN"}
    listener = Listener("X", "", 0, "", 0, protocol)
    shows: list[object] = [shown(properties)]
    for make in (
        lambda: client_config(properties),
        lambda: Access(client_config(properties)).tls,
        lambda: peer_config(names, "X", protocol, "sasl.mechanism.inter.broker.protocol"),
        lambda: ListenerSecurity(listener, names, lambda mechanism, name: None),
    ):
        try:
            shows.append(make())
        except InvalidArgumentError as error:
            shows += [error, "".join(traceback.format_exception(error))]
    for one in shows:
        assert secret not in f"{one} {one!r}", one


def test_an_address_of_tokens_is_shown_without_its_secrets() -> None:
    with pytest.raises(AuthenticationError) as caught:
        fetch_token(
            OAuthSettings(url=f"http://ann:{HIDE}@127.0.0.1:1/{'token'}?key={HIDE}", client_id="a", client_secret=Secret(HIDE))
        )
    assert HIDE not in "".join(traceback.format_exception(caught.value))
    assert "127.0.0.1:1/token" in str(caught.value)
