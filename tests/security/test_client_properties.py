"""A configuration as properties, and back: it is the same one, whatever it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.connections.addresses import config_of, with_config
from tidelog.errors import InvalidArgumentError
from tidelog.model import TopicPartition
from tidelog.security.client_config import IN_PLAIN_TEXT, SASL_PROPERTIES, client_config
from tidelog.security.client_properties import client_properties
from tidelog.security.jaas import SCRAM_MODULE
from tidelog.spark.bootstrap import Cut
from tidelog.spark.option_values import CLIENT

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)
PEM = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----"
TLS = st.fixed_dictionaries(
    {"security.protocol": st.sampled_from(["SSL", "SASL_SSL"])},
    optional={
        "ssl.enabled.protocols": st.sampled_from(["TLSv1.2", "TLSv1.3", "TLSv1.3,TLSv1.2"]),
        "ssl.truststore.location": st.just("/tmp/ca.pem"),
        "ssl.certificate.location": st.just("client.pem"),
        "ssl.key.location": st.just("client.key"),
        "ssl.key.password": TEXTS.map(str.strip).filter(bool),
        "ssl.endpoint.identification.algorithm": st.sampled_from(["https", "", "none"]),
        "enable.ssl.certificate.verification": st.sampled_from(["true", "false"]),
    },
)
CIPHERS = st.sampled_from(["", "ECDHE-RSA-AES256-GCM-SHA384,TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"])
SASL = st.one_of(
    st.fixed_dictionaries(
        {"sasl.mechanism": st.sampled_from(["PLAIN", "SCRAM-SHA-512"]), "sasl.username": TEXTS, "sasl.password": st.text()}
    ),
    TEXTS.map(lambda name: {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas(name)}),
    st.fixed_dictionaries(
        {
            "sasl.mechanism": st.just("OAUTHBEARER"),
            "sasl.oauthbearer.token.endpoint.url": st.just("https://idp.example/token"),
            "sasl.oauthbearer.client.id": TEXTS,
            "sasl.oauthbearer.client.secret": TEXTS,
        },
        optional={"sasl.oauthbearer.scope": TEXTS},
    ),
)


def jaas(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{SCRAM_MODULE} required username="{escaped}" password="{escaped}" tokenauth=true;'


@given(TLS, CIPHERS, SASL)
def test_there_and_back(tls: dict[str, str], ciphers: str, sasl: dict[str, str]) -> None:
    if "TLSv1.3" in tls.get("ssl.enabled.protocols", "TLSv1.3"):
        tls = tls | {"ssl.cipher.suites": ciphers}
    for given_ in (tls | sasl, sasl | {"security.protocol": "SASL_PLAINTEXT"}):
        config = client_config(given_)
        assert client_config(client_properties(config)) == config


def test_texts_and_unsecured_tokens() -> None:
    config = client_config(
        {
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": PEM,
            "ssl.certificate.pem": PEM,
            "ssl.key.pem": PEM,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="a\\"b" unsecuredLoginLifetimeSeconds="60";',
        }
    )
    assert client_config(client_properties(config)) == config
    assert client_properties(IN_PLAIN_TEXT) == {}


def test_a_function_is_no_text() -> None:
    config = client_config({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: "t"})
    with pytest.raises(InvalidArgumentError, match="oauth_cb"):
        client_properties(config)


def test_a_cut_of_secured_brokers_tells_spark() -> None:
    key = TopicPartition("orders", 0)
    secret = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "of-tests"}
    source = with_config("a:9093", secret)
    cut = Cut(source, None, 0, {key: 0}, {key: 1})
    options = cut.history_options()
    assert options["kafka.bootstrap.servers"] == "a:9093"
    told = {name.removeprefix(CLIENT): value for name, value in options.items() if name.startswith(CLIENT)}
    assert client_config({name: value for name, value in told.items() if name != "bootstrap.servers"}) == config_of(source)
    assert not {name for name in told if name in SASL_PROPERTIES} - {"sasl.mechanism", "sasl.username", "sasl.password"}
    assert "of-tests" not in repr(cut) + str(cut) + repr(cut._content())
