"""Parses znodes that others have written as JSON, and makes the broker's own. Malformed content raises ZookeeperError with the
znode's path.

| znode | |
|---|---|
| ``/cluster/id`` | ``{"version":"1","id":"…"}`` |
| ``/controller`` | ``{"version":1,"brokerid":1,…}`` |
| ``/brokers/topics/<topic>`` | ``{"version":3,"topic_id":"…","partitions":{"0":[1,2]},…}``; without an id before 2.8 |
| ``/latest_producer_id_block`` | ``{"version":1,"broker":1,"block_start":"0","block_end":"999"}`` |
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tidelog.broker.cluster.zookeeper.session import ZookeeperError
from tidelog.broker.requests.listeners import Listener, joined
from tidelog.formats.partition_metadata import parse_topic_id
from tidelog.security.client_config import PLAINTEXT

T = TypeVar("T")

SHOWN = 100


class Assignment(NamedTuple):
    """A topic's id (None if it has none), and the replicas of each partition."""

    topic_id: uuid.UUID | None
    replicas: dict[int, list[int]]


def parsed(path: str, data: bytes, read: Callable[[dict[str, Any]], T]) -> T:
    """Return what `read` parses from a znode. Raises ZookeeperError with the path for malformed content."""
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise TypeError
        return read(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ZookeeperError("the znode has unexpected content", path=path, found=data[:SHOWN]) from None


def cluster_id_of(value: dict[str, Any]) -> str:
    found = value["id"]
    if not isinstance(found, str) or not found.strip():
        raise ValueError
    return found


def assignment_of(value: dict[str, Any]) -> Assignment:
    """Return a topic's id and replicas from the value of its znode."""
    text = value.get("topic_id")
    topic_id = None
    if text:
        topic_id = parse_topic_id(text)
        if topic_id is None:
            raise ValueError
    replicas = {}
    for number, brokers in value["partitions"].items():
        if not isinstance(brokers, list):
            raise TypeError
        replicas[int(number)] = [int(one) for one in brokers]
    return Assignment(topic_id, replicas)


IDS = "/brokers/ids"


def broker_znode(version: int, listeners: Sequence[Listener], rack: str | None, now_ms: int) -> bytes:
    """Return a broker's znode, ``/brokers/ids/<id>``, in the version that the inter-broker protocol requires.

    | version | added |
    |---|---|
    | 2 | host and port of a PLAINTEXT listener, jmx_port, timestamp, endpoints |
    | 4 | rack, and the security protocol of each listener (KIP-36, KIP-103) |
    | 5 | features (KIP-584) |
    """
    plain = next((one for one in listeners if one.name == PLAINTEXT), None)
    value: dict[str, Any] = {
        "version": version,
        "host": None if plain is None else plain.advertised_host,
        "port": -1 if plain is None else plain.advertised_port,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [f"{one.name}://{joined(one.advertised_host, one.advertised_port)}" for one in listeners],
    }
    if version >= 4:
        if rack is not None:
            value["rack"] = rack
        value["listener_security_protocol_map"] = {one.name: one.protocol for one in listeners}
    if version >= 5:
        value["features"] = {}
    return json.dumps(value).encode()
