"""A broker's properties, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Listener(NamedTuple):
    """An address to listen on, and the one that clients are told. Port 0: any free one."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """See the module."""

    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092),)
    socket_request_max_bytes: int = 104_857_600
