"""Broker properties whose values are secrets: DescribeConfigs names them all, and shows the value of none, as Kafka 3.9.1."""

from __future__ import annotations

from typing import Final

_STATIC: Final = frozenset(
    {
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.truststore.password",
    }
)

_DYNAMIC: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.password",
    }
)
"""Those that Kafka can change while it runs."""

SENSITIVE_PROPERTIES: Final = _STATIC | _DYNAMIC

_LISTENER: Final = "listener.name."


def is_secret(name: str) -> bool:
    """Whether a property is one of these, maybe of one listener, or of a listener's mechanism."""
    if name in SENSITIVE_PROPERTIES:
        return True
    return name.startswith(_LISTENER) and any(name.endswith(f".{one}") for one in _DYNAMIC)


def is_read_only(name: str) -> bool:
    """Whether Kafka reads a secret at its start only. What is of one listener counts as such, whatever it is."""
    return name not in _DYNAMIC
