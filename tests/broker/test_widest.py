"""No request keeps the loop for long, however many elements it has: each served API is sent its widest ones.

What is measured is processor time, turn by turn (`loop_turns`). An API that is added is among them by itself (`widest`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.conftest import StartBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.widest import requests
from tests.examples import IS_SOAK
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.wire.fields import Field
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

COUNT = 200_000 if IS_SOAK else 6_000
MISSES = 200_000 if IS_SOAK else 2_000
"""Elements of requests that hit nothing at all: an error each, the cheaper way."""

LONGEST_S = 0.025
"""Slices have 4 ms, and 2,000 elements may be read on the loop: the rest is for a machine that is busy otherwise."""

TRIES = 5
"""So often a request is asked that seems to take long: what takes long by itself does so each time, or far longer the first."""

MOST_GARBAGE = 2_000
"""So many objects may be garbage in cycles after a request: the log of a partition that was deleted has sixty. The collector
takes all of them in one go, which no slice bounds."""

NONE = -1
TEXTS = {"group_id": "g", "transactional_id": "id", "v3_and_below_transactional_id": "id", "protocol_type": "consumer"}
NUMBERS = {
    "acks": 1,
    "resource_type": 2,
    "max_bytes": 1000,
    "partition_max_bytes": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "timeout_ms": 10_000,
    "transaction_timeout_ms": 10_000,
    "validate_only": True,
    "allow_auto_topic_creation": False,
} | dict.fromkeys(
    ["replica_id", "session_epoch", "leader_epoch", "current_leader_epoch", "timestamp", "retention_time_ms", "generation_id"],
    NONE,
)


@pytest.fixture
def collector() -> Iterator[None]:
    """Collects only when it is asked to, and only what came since."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("hits", [False, True])
def test_no_request_keeps_the_loop_for_long(start_broker: StartBroker, hits: bool) -> None:
    """`hits`: of topics and groups that there are; else of ones that there are not."""
    broker = start_broker(auto_create_topics_enable=False, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
    broker.create_topic("t", 20)
    known: dict[str, Any] = dict(TEXTS) | NUMBERS

    def value(struct: type, field: Field, number: int) -> Any:
        if field.name in known:
            return known[field.name]
        kind = field.of.__name__ if field.kind == "array" else field.kind
        if kind == "string":
            if hits and field.name in ("name", "topic", "resource_name") and number == 0:
                return "t"
            return None if field.default is None and field.kind != "array" else f"n{number}"
        if kind == "data":
            return b"x"
        if field.kind == "records":
            return b""
        return number if (kind == "int32" and field.default == 0) or field.kind == "array" else None

    slow, littering, asked = [], [], 0
    with broker.client() as client:
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), 4)
        given = client.ask(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=10_000), 4)
        if hits:
            known.update(producer_id=given.producer_id, v3_and_below_producer_id=given.producer_id, producer_epoch=0)
        with LoopTurns(broker) as turns:
            for api in APIS:
                for one in requests(api, COUNT if hits else MISSES, value):
                    message = one.make()
                    asked += 1
                    gc.collect()
                    for _ in range(TRIES):
                        turns.clear()
                        client.send(message, one.version)
                        client.receive_frame()
                        client.forget()
                        broker.on_loop(lambda: None)
                        if turns.longest.seconds <= LONGEST_S:
                            break
                        assert turns.longest.seconds < 4 * LONGEST_S, (one.what, turns.turns[:2])
                    else:
                        slow.append((one.what, turns.turns[:2]))
                    garbage = gc.collect()
                    if garbage > MOST_GARBAGE:
                        littering.append((one.what, garbage))
    assert not slow, slow
    assert not littering, littering
    assert asked > len(APIS)
