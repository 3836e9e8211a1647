"""Where brokers are: `host:port`, or several with commas between, as in Kafka's `bootstrap.servers`.

| text | is |
|---|---|
| `localhost:9092`, `10.0.0.1:9092`, `[::1]:9092`, `a:9092,b:9092` | brokers |
| `PLAINTEXT://a:9092` | the same; other security protocols are refused, they are not spoken here |
| anything else | no address: where a folder may stand too, it is one |

A folder whose name looks like an address is written `./name:9092`, or given as a `Path`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError

EXPECTED = "host:port, several with commas between"

_ADDRESS = re.compile(
    r"(?:(?P<protocol>[A-Za-z][A-Za-z0-9_]*)://)?"
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


def is_address(source: object) -> bool:
    """Whether `source` is the text of one or more addresses; only texts are. It need not be a right one: the port may be."""
    return isinstance(source, str) and all(_ADDRESS.fullmatch(part.strip()) for part in source.split(","))


def parse_addresses(text: str) -> tuple[BrokerAddress, ...]:
    """Return the addresses in a text, each once. Raises InvalidArgumentError for whatever is none."""
    found: dict[BrokerAddress, None] = {}
    for part in text.split(","):
        match = _ADDRESS.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError("no address of a broker", found=repr(part.strip()), expected=EXPECTED)
        if (match["protocol"] or "PLAINTEXT").upper() != "PLAINTEXT":
            raise InvalidArgumentError("only PLAINTEXT is spoken to brokers", found=part.strip())
        port = int(match["port"])
        if not 0 < port < 65_536:
            raise InvalidArgumentError("no port", found=port, expected="1 to 65535")
        found[BrokerAddress(match["ipv6"] or match["host"], port)] = None
    return tuple(found)
