"""Members that join at the same moment: no round of the loop has them all."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.broker.consumer_groups.test_consumer_coordinating import ON, Consumer
from tests.broker.groups.members import Coordinator
from tidelog.broker.apis import consumer_group_heartbeat
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import SLICE_S
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def test_a_join_waits_if_the_round_is_full(tmp_path: Path) -> None:
    """Its first step does nothing then. A heartbeat that changes nothing is answered at once."""
    coordinator = Coordinator(tmp_path / "data", **ON)
    coordinator.broker.create_topic("t", 2)
    known = Consumer(coordinator, "g", "t", member_id="known").beat()
    asked = cast("Request", SimpleNamespace(api_version=1, client_id="raw", peer_host="127.0.0.1"))
    node = coordinator.broker.node

    def look() -> None:
        node.slices.note(2 * SLICE_S)
        handle: Any = consumer_group_heartbeat.API.handle
        idle = handle(node, ConsumerGroupHeartbeatRequest("g", "known", known.epoch), asked)
        assert idle.member_epoch == known.epoch
        join = ConsumerGroupHeartbeatRequest("g", "new", 0, None, None, 60_000, ["t"], None, None, [])
        answering = handle(node, join, asked)
        group = node.groups.get("g")
        assert isinstance(answering, Generator) and group is not None and group.member_count == 1
        next(answering)
        for _ in answering:
            pass
        assert group.member_count == 2

    coordinator.broker.on_loop(look)
    coordinator.close()
