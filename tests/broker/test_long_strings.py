"""Whatever strings a request has, it is answered: no reason that repeats one of them is longer than an answer's string may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.broker.widest import plain, requests
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.wire.decoder_source import MAX_STRING_BYTES
from tidelog.wire.fields import Field
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest

KNOWN: dict[str, Any] = {
    "group_id": "g",
    "transactional_id": "id",
    "v3_and_below_transactional_id": "id",
    "protocol_type": "consumer",
    "acks": 1,
    "resource_type": 2,
    "max_bytes": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
}
LONG = {
    "letters": "x" * MAX_STRING_BYTES,
    "what repr makes longer": "\x01" * MAX_STRING_BYTES,
    "wide": "\u20ac" * (MAX_STRING_BYTES // 3),
}


def texts(struct: Any) -> Iterator[str]:
    """Yield the names of all fields of a request that are strings, or hold some."""
    for field in struct.FIELDS:
        kind = field.of.__name__ if field.kind == "array" else field.kind
        if kind == "string":
            yield field.name
        elif hasattr(field.of, "FIELDS"):
            yield from texts(field.of)


def closing(broker: RunningBroker, long: str, resource_type: int) -> list[str]:
    """Ask each API with each of its strings long, and return what closed the connection instead of being answered."""
    found = []
    client = RawClient(broker.address)
    for api in APIS:
        for name in dict.fromkeys(texts(api.request)):

            def value(struct: type, field: Field, number: int, name: str = name) -> Any:
                if field.name == name:
                    return long
                if field.name == "resource_type":
                    return resource_type
                if field.name in KNOWN:
                    return KNOWN[field.name]
                kind = field.of.__name__ if field.kind == "array" else field.kind
                if kind == "string":
                    return None if field.kind == "string" and field.default is None else "t"
                if kind == "data" or field.kind == "records":
                    return b"x" if kind == "data" else b""
                return 0 if field.kind == "array" else None

            asked = [(one.what, one.version, one.make()) for one in requests(api, 1, value)]
            if not asked:
                asked.append((api.name, api.served.last, plain(api, value)))
            for what, version, message in asked:
                client.send(message, version)
                try:
                    client.receive_frame()
                    client.forget()
                except ConnectionError:
                    found.append(f"{what}: {name}")
                    client.close()
                    client = RawClient(broker.address)
    client.close()
    return found


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("resource_type", [2, 4])
def test_each_is_answered(start_broker: StartBroker, kind: str, resource_type: int) -> None:
    broker = start_broker(auto_create_topics_enable=False, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
    broker.create_topic("t")
    with broker.client() as client:
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
    assert closing(broker, LONG[kind], resource_type) == []
