"""Broker addresses: `host:port`, or several separated by commas, as in Kafka's `bootstrap.servers`.

| text | meaning |
|---|---|
| `localhost:9092`, `10.0.0.1:9092`, `[::1]:9092`, `a:9092,b:9092` | brokers |
| `SASL_SSL://a:9093` | the same; refused if the configuration has a different security protocol |
| anything else | not an address: a folder, if folders are allowed |

A folder whose name looks like an address is written `./name:9092`, or given as a `Path`.

The addresses and the connection's configuration are passed together: from a command, an option or an argument, through plans,
splits and jobs, to the executor that connects. `SecuredBrokers` is a `str` that carries both. Its text is only the addresses, so
printing, comparing and storing it does not reveal the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import InvalidArgumentError

# Code that reads folders only needs `is_address`, so it must not import `security.client_config`, which takes 15 ms.
if TYPE_CHECKING:
    from tidelog.security.client_config import ClientConfig

EXPECTED = "host:port, or several separated by commas"

_ADDRESS = re.compile(
    r"(?:(?P<protocol>(?i:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL))://)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*)))"
    r":(?P<port>\d{1,5})",
    re.ASCII,
)


class BrokerAddress(NamedTuple):
    """A host and its port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SecuredBrokers(str):
    """Broker addresses that carry the connection's configuration. Can be pickled; the text itself is only the addresses."""

    __slots__ = ("config",)
    config: ClientConfig

    def __new__(cls, text: str, config: ClientConfig) -> SecuredBrokers:
        """Return the addresses in `text`, carrying the configuration `config`."""
        made = super().__new__(cls, text)
        made.config = config
        return made

    def __str__(self) -> str:
        return "".join(self)

    def __reduce__(self) -> tuple[type[SecuredBrokers], tuple[str, ClientConfig]]:
        return SecuredBrokers, (str(self), self.config)


def config_of(brokers: str) -> ClientConfig:
    """Return the configuration that the addresses carry; if they carry none, the configuration of a plain-text connection."""
    from tidelog.security.client_config import IN_PLAIN_TEXT

    return brokers.config if isinstance(brokers, SecuredBrokers) else IN_PLAIN_TEXT


def secured(brokers: str, config: ClientConfig) -> str:
    """Return the addresses, carrying the configuration."""
    from tidelog.security.client_config import IN_PLAIN_TEXT

    return brokers if config == IN_PLAIN_TEXT else SecuredBrokers(brokers, config)


def with_config(brokers: str, properties: Mapping[str, object]) -> str:
    """Return the addresses, carrying a configuration built from Kafka's properties or keywords. Raises InvalidArgumentError."""
    from tidelog.security.client_config import check_names, client_config, dotted

    named = dotted(properties)
    check_names(named)
    return secured(brokers, client_config(named))


def is_address(source: object) -> bool:
    """Whether the text `source` looks like one or more broker addresses. An address may still be invalid, for example its
    port.
    """
    return isinstance(source, str) and all(_ADDRESS.fullmatch(part.strip()) for part in source.split(","))


def parse_addresses(text: str) -> tuple[BrokerAddress, ...]:
    """Return the addresses in a text, without duplicates. Raises InvalidArgumentError for an invalid address."""
    found: dict[BrokerAddress, None] = {}
    for part in text.split(","):
        match = _ADDRESS.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError("not a broker's address", found=repr(part.strip()), expected=EXPECTED)
        expected = config_of(text).protocol
        if (match["protocol"] or expected).upper() != expected:
            raise InvalidArgumentError(
                "the address and the configuration have different security protocols",
                found=part.strip(),
                expected=f"security.protocol={expected}",
            )
        port = int(match["port"])
        if not 0 < port < 65_536:
            raise InvalidArgumentError("the port is out of range", found=port, expected="1 to 65535")
        found[BrokerAddress(match["ipv6"] or match["host"], port)] = None
    return tuple(found)
