"""One `server.properties` with listeners of each kind, for Apache Kafka and for Tidelog; the certificates that it names.

| listener | |
|---|---|
| PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL | each protocol, with each mechanism |
| MTLS, BOTH | require a client certificate; BOTH requires SASL as well |
| SIGNED | only OAUTHBEARER, with tokens signed by an identity provider |
| SHORT | sessions of a few seconds, without OAUTHBEARER |
| ELSEWHERE, EXPIRED | a certificate for another host, and an expired one |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.certificates import PASSWORD, Authority
from tests.identity_provider import AUDIENCE, ISSUER, KEYS_FILE

ALICE = "a,li=ce"
BOB = "bob"
"""For clients that do not escape names: kafka-python."""
SESSION_S = 4
PROTOCOLS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "BOTH": "SASL_SSL",
    "SIGNED": "SASL_PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_OFFERED = {"SHORT": MECHANISMS[:3], "SIGNED": MECHANISMS[3:]}
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


def authority_of(folder: Path) -> Authority:
    """Return the CA that signed the listeners' certificates, with a client's certificate, and an unrelated CA."""
    authority = Authority(folder)
    authority.sign("broker", hosts=("localhost", "127.0.0.1"))
    authority.sign("client", subject="/O=Tides/CN=client")
    authority.sign("elsewhere", hosts=("broker.example",))
    authority.sign("expired", hosts=("localhost", "127.0.0.1"), days=-1)
    Authority(folder / "strange").sign("client")
    return authority


def secured_properties(authority: Authority, ports: Mapping[str, int], controller_port: int) -> dict[str, str]:
    """Return the properties; `ports` are those of all listeners, including PLAINTEXT."""
    clients = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **PROTOCOLS}
    properties = {
        "listeners": f"CONTROLLER://127.0.0.1:{controller_port},{clients}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "controller.listener.names": "CONTROLLER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.both.ssl.client.auth": "required",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        "listener.name.signed.sasl.oauthbearer.jwks.endpoint.url": (authority.folder / KEYS_FILE).as_uri(),
        "listener.name.signed.sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.signed.sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.short.connections.max.reauth.ms": str(1000 * SESSION_S),
        "listener.name.elsewhere.ssl.keystore.location": str(authority.folder / "elsewhere.pem"),
        "listener.name.expired.ssl.keystore.location": str(authority.folder / "expired.pem"),
    }
    for name, protocol in PROTOCOLS.items():
        if not protocol.startswith("SASL"):
            continue
        offered = _OFFERED.get(name, MECHANISMS)
        properties[f"listener.name.{name.lower()}.sasl.enabled.mechanisms"] = ",".join(offered)
        for one in offered:
            options = {
                "PLAIN": f' "user_{ALICE}"="{PASSWORD}" user_{BOB}="{PASSWORD}"',
                "OAUTHBEARER": "" if name == "SIGNED" else ' unsecuredLoginStringClaim_sub="broker"',
            }
            properties[f"listener.name.{name.lower()}.{one.lower()}.sasl.jaas.config"] = (
                f"{MODULES[one]} required{options.get(one, '')};"
            )
    return properties
