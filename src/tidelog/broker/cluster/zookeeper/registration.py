"""A broker's znode, ``/brokers/ids/<id>``: its addresses, as JSON in the version that the inter-broker protocol requires.

| version | added |
|---|---|
| 2 | host and port of a PLAINTEXT listener, jmx_port, timestamp, endpoints |
| 4 | rack, and the security protocol of each listener (KIP-36, KIP-103) |
| 5 | features (KIP-584) |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidelog.broker.requests.listeners import Listener
from tidelog.security.client_config import PLAINTEXT

IDS = "/brokers/ids"


def broker_znode(version: int, listeners: Sequence[Listener], rack: str | None, now_ms: int) -> bytes:
    plain = next((one for one in listeners if one.name == PLAINTEXT), None)
    value: dict[str, Any] = {
        "version": version,
        "host": None if plain is None else plain.advertised_host,
        "port": -1 if plain is None else plain.advertised_port,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [_endpoint(one) for one in listeners],
    }
    if version >= 4:
        if rack is not None:
            value["rack"] = rack
        value["listener_security_protocol_map"] = {one.name: one.protocol for one in listeners}
    if version >= 5:
        value["features"] = {}
    return json.dumps(value).encode()


def _endpoint(listener: Listener) -> str:
    host = f"[{listener.advertised_host}]" if ":" in listener.advertised_host else listener.advertised_host
    return f"{listener.name}://{host}:{listener.advertised_port}"
