"""Where a broker listens and which addresses it advertises: `listeners`, `advertised.listeners` and related properties.

| property | meaning |
|---|---|
| `listeners` | `NAME://host:port`, separated by commas; an empty host: every interface; port 0: any free port |
| `advertised.listeners` | the address that clients get for the listener of that name; by default the listener's own address |
| `listener.security.protocol.map` | `NAME:PROTOCOL`; not needed if the name is itself a protocol |
| `controller.listener.names` | listeners of Kafka's controller; ignored, because this broker has no controller |
| `host.name`, `port`, `advertised.host.name`, `advertised.port` | as before Kafka 3.0; used if `listeners` is not set |

If none of these properties is set, a broker listens on 127.0.0.1:9092 only, so that no other machine can connect by accident.
`listener_security` reads the TLS and SASL settings of a listener. `peer_security` reads the settings for connections to other
brokers and controllers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import NamedTuple

from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.security.client_config import PLAINTEXT, SECURITY_PROTOCOLS
from tidelog.security.signed_tokens import SIGNED_TOKEN_PROPERTIES
from tidelog.security.tls_settings import TLS_PROPERTIES

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 9092
_WILDCARDS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")
MAX_PORT = 65535

LISTENER_PROPERTIES = frozenset(
    {
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "controller.listener.names",
        "host.name",
        "port",
        "advertised.host.name",
        "advertised.port",
    }
)
"""The properties that `parse_listeners` reads."""


_OF_SECURITY = re.compile(
    r"(?:listener\.name\.[^.]+\.)?(?:(?:plain|scram-sha-256|scram-sha-512|oauthbearer)\."
    r"(?:sasl\.jaas\.config|connections\.max\.reauth\.ms)|"
    r"oauthbearer\.sasl\.server\.callback\.handler\.class|(?:oauthbearer\.)?(?P<name>.+))"
)
_SECURITY = (
    TLS_PROPERTIES
    | SIGNED_TOKEN_PROPERTIES
    | {
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "ssl.client.auth",
        "ssl.principal.mapping.rules",
    }
)


def is_of_security(name: str) -> bool:
    """Return whether a property belongs to a listener's security settings."""
    match = _OF_SECURITY.fullmatch(name)
    return match is not None and (match["name"] is None or match["name"] in _SECURITY)


class Listener(NamedTuple):
    """An address to listen on, and the advertised address.

    `host` "" means every interface. `port` 0 means any free port, and `advertised_port` 0 means the port that is actually used.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    protocol: str = PLAINTEXT
    """One of `SECURITY_PROTOCOLS`."""

    def bound(self, port: int) -> Listener:
        """Return the listener with its actual port."""
        return self._replace(port=port, advertised_port=self.advertised_port or port)


def loopback(port: int = DEFAULT_PORT) -> Listener:
    """Return a PLAINTEXT listener that only programs on this machine can reach."""
    return Listener(PLAINTEXT, LOOPBACK, port, LOOPBACK, port)


def parse_address(text: str, default_host: str = LOOPBACK) -> tuple[str, int]:
    """Split `host:port`, `[v6]:port` or `port`, and return host and port. Raises InvalidArgumentError for anything else."""
    host, separator, port = text.strip().rpartition(":")
    if not separator:
        host = default_host
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not (port.isascii() and port.isdigit()) or int(port) > MAX_PORT:
        raise InvalidArgumentError("not an address", found=repr(text), expected="host:port, with a port of at most 65535")
    return host, int(port)


def joined(host: str, port: int) -> str:
    """Return `host:port` in the form that `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listeners(properties: Mapping[str, PropertyValue]) -> tuple[Listener, ...]:
    """Return the listeners that a broker's properties define, at least one. Raises InvalidArgumentError if the properties are
    invalid.
    """
    text = str(properties.get("listeners", "") or "")
    if not text.strip():
        return (_before_listeners(properties),)
    protocols = _protocol_map(properties)
    controllers = {word.upper() for word in words(properties.get("controller.listener.names"))}
    advertised = _addresses("advertised.listeners", properties.get("advertised.listeners"))
    found = []
    for name, (host, port) in _addresses("listeners", text).items():
        if name in controllers:
            continue
        protocol = _protocol(name, protocols)
        found.append(_listener(name, host, port, advertised.pop(name, None))._replace(protocol=protocol))
    left = sorted(advertised.keys() - controllers)
    if left:
        raise InvalidArgumentError("advertised.listeners names a listener that is not in listeners", found=", ".join(left))
    if not found:
        raise InvalidArgumentError("listeners has no listener for clients", found=repr(text), expected="PLAINTEXT://host:port")
    return tuple(found)


def listener_names(properties: Mapping[str, PropertyValue]) -> set[str]:
    """Return the names in `listeners`, in upper case, including controller listeners. Raises InvalidArgumentError if `listeners`
    is invalid.
    """
    return set(_addresses("listeners", properties.get("listeners")))


def controller_protocol(name: str, properties: Mapping[str, PropertyValue]) -> str:
    """Return the protocol of a controller listener, or PLAINTEXT if there is no map. Raises InvalidArgumentError if the protocol
    is invalid.
    """
    protocols = _protocol_map(properties)
    return _protocol(name, protocols) if protocols or name in SECURITY_PROTOCOLS else PLAINTEXT


def _before_listeners(properties: Mapping[str, PropertyValue]) -> Listener:
    if "host.name" in properties or "port" in properties:
        host, port = str(properties.get("host.name", "")), _port("port", properties.get("port", DEFAULT_PORT))
    else:
        host, port = LOOPBACK, DEFAULT_PORT
    advertised = _addresses("advertised.listeners", properties.get("advertised.listeners"))
    if advertised:
        name, address = next(iter(advertised.items()))
        _check_plain(name, _protocol_map(properties))
        return _listener(name, host, port, address)
    if "advertised.host.name" in properties or "advertised.port" in properties:
        address = str(properties.get("advertised.host.name", "") or host), _port("", properties.get("advertised.port", port))
        return _listener(PLAINTEXT, host, port, address)
    return _listener(PLAINTEXT, host, port, None)


def _listener(name: str, host: str, port: int, advertised: tuple[str, int] | None) -> Listener:
    client_host, client_port = advertised or (host, port)
    if client_host in _WILDCARDS:
        raise InvalidArgumentError(
            f"clients cannot connect to {client_host}",
            found=f"listener {name}",
            expected="a host name or address in advertised.listeners",
        )
    return Listener(name, host, port, client_host or socket.getfqdn(), client_port)


def _addresses(property_name: str, text: PropertyValue | None) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for word in words(text):
        name, separator, address = word.partition("://")
        if not separator:
            raise InvalidArgumentError(
                f"{property_name} must be a list of addresses", found=repr(word), expected="NAME://host:port"
            )
        if name.upper() in found:
            raise InvalidArgumentError(f"{property_name} has a duplicate name", found=name)
        found[name.upper()] = parse_address(address, "")
    return found


def _protocol_map(properties: Mapping[str, PropertyValue]) -> dict[str, str]:
    pairs = (word.rpartition(":") for word in words(properties.get("listener.security.protocol.map")))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name, name)
    if protocol not in SECURITY_PROTOCOLS:
        raise InvalidArgumentError(
            f"listener {name} has no protocol", expected=f"an entry in listener.security.protocol.map, such as {name}:PLAINTEXT"
        )
    return protocol


def _check_plain(name: str, protocols: Mapping[str, str]) -> None:
    protocol = _protocol(name, protocols)
    if protocol != PLAINTEXT:
        raise InvalidArgumentError(f"listener {name}", found=protocol, expected="PLAINTEXT, the only protocol supported there")


def _port(name: str, value: PropertyValue) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_PORT:
        raise InvalidArgumentError(f"{name or 'advertised.port'} is not a port number", found=repr(value), expected="0 to 65535")
    return int(text)


def words(text: PropertyValue | None) -> list[str]:
    """Return the parts of a comma-separated list, stripped, without empty ones."""
    return [word.strip() for word in str(text or "").split(",") if word.strip()]


def java_address(address: str) -> str:
    """Return a peer's address in Java's form, which ACLs use for hosts: IPv6 addresses keep all their zeros."""
    if ":" not in address:
        return address
    plain, percent, zone = address.partition("%")
    parsed = IPv6Address(plain)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":")) + percent + zone
