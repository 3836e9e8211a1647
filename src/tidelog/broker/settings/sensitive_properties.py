"""Broker properties whose values are secret: DescribeConfigs lists them all but never returns a value, as in Kafka 3.9.1."""

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
"""The secret properties that Kafka can change while the broker runs."""

SENSITIVE_PROPERTIES: Final = _STATIC | _DYNAMIC

UNDEFINED_PROPERTIES: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Properties of the authorizer, unknown to Kafka's broker: DescribeConfigs lists them only if they are set, and as secrets."""

_LISTENER: Final = "listener.name."


def is_secret(name: str) -> bool:
    """Return whether a property is secret; it may have the prefix of a listener, or of a listener's mechanism."""
    if name in SENSITIVE_PROPERTIES:
        return True
    return name.startswith(_LISTENER) and any(name.endswith(f".{one}") for one in _DYNAMIC)


def is_read_only(name: str) -> bool:
    """Return whether Kafka reads a secret property only at startup. Properties of a single listener count as read-only."""
    return name not in _DYNAMIC
