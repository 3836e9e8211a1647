"""How a broker connects to other nodes: the client side of the inter-broker listener and of the controllers' listener.

Properties are Kafka's: the listener's own, `listener.name.<name>.…`, take precedence over those without a prefix.

| property | inter-broker listener | controllers' listener |
|---|---|---|
| protocol | `listener.security.protocol.map` | the same |
| `ssl.*` | trusted certificates; the key is used if the peer requests a certificate | the same |
| SASL mechanism | `sasl.mechanism.inter.broker.protocol` | `sasl.mechanism.controller.protocol` |
| `listener.name.<name>.<mechanism>.sasl.jaas.config` | the module, with `username` and `password` | the same |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.security.client_config import (
    IN_PLAIN_TEXT,
    MECHANISMS,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_PROPERTIES,
    SASL_SSL,
    ClientConfig,
    client_config,
)
from tidelog.security.jaas import PROPERTY as JAAS
from tidelog.security.tls_settings import TLS_PROPERTIES

INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"


def peer_config(properties: Mapping[str, PropertyValue], name: str, protocol: str, mechanism_property: str) -> ClientConfig:
    """Return the client configuration for connections to the listener `name` of other nodes. The property `mechanism_property`
    gives the SASL mechanism. Raises InvalidArgumentError; its message contains no values that may be secret.
    """
    if protocol == PLAINTEXT:
        return IN_PLAIN_TEXT
    prefix = f"listener.name.{name.lower()}."

    def text(property_name: str, *prefixes: str) -> str:
        found = next((properties[one + property_name] for one in prefixes if one + property_name in properties), "")
        return str(found).strip()

    given = {one: value for one in TLS_PROPERTIES if (value := text(one, prefix, ""))}
    given["security.protocol"] = protocol
    if protocol in (SASL_PLAINTEXT, SASL_SSL):
        mechanism = str(properties.get(mechanism_property) or "").strip().upper()
        if mechanism not in MECHANISMS:
            raise InvalidArgumentError(
                f"{mechanism_property}: this broker cannot authenticate at listener {name} with this mechanism",
                found=mechanism or "nothing, so Kafka's default GSSAPI",
                expected=f"one of {', '.join(MECHANISMS)}",
            )
        own = f"{prefix}{mechanism.lower()}."
        jaas = f"{own}{JAAS}"
        if not text(jaas, ""):
            raise InvalidArgumentError(f"{mechanism} needs {jaas}, this broker's credentials for listener {name}")
        given |= {one: value for one in SASL_PROPERTIES if (value := text(one, own, prefix, ""))}
        given |= {"sasl.mechanism": mechanism, JAAS: text(jaas, "")}
    try:
        return client_config(given)
    except InvalidArgumentError as error:
        what = f"connections of this broker to listener {name}: {error.message}"
        raise InvalidArgumentError(what, path=error.path, found=error.found, expected=error.expected) from None
