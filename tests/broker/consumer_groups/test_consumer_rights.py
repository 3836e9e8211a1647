"""Members of consumer groups see no topic that they may not describe, whether they name it, match it, or ask who has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.raw import RawClient
from tests.broker.test_acls import Secured, allow
from tidelog.security.acl import Operation, PatternType, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path / "data", **{"group.coordinator.rebalance.protocols": "classic,consumer"})
    for topic in ("open.1", "open.2", "secret.1"):
        made.broker.create_topic(topic, 1)
    made.admin.ask(FindCoordinatorRequest(key="g"), 1)
    for operation in (Operation.READ, Operation.DESCRIBE):
        assert made.create(allow(operation, ResourceType.GROUP, "g")) == [0]
    open_topics = allow(Operation.DESCRIBE, ResourceType.TOPIC, "open.", pattern_type=PatternType.PREFIXED)
    assert made.create(open_topics) == [0]
    yield made
    made.stop()


def joined(client: RawClient, member_id: str, **subscription: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest("g", member_id, rebalance_timeout_ms=60_000, topic_partitions=[], **subscription)
    return client.ask(request, 1)


def topics_of(secured: Secured, answer: Any) -> set[str]:
    views = [secured.broker.node.topics.by_id(one.topic_id) for one in answer.assignment.topic_partitions]
    return {view.name for view in views if view is not None}


def test_a_pattern_matches_only_what_the_member_may_describe(secured: Secured) -> None:
    answer = joined(secured.stranger, "one", subscribed_topic_regex=".*")
    assert topics_of(secured, answer) == {"open.1", "open.2"}
    secured.broker.create_topic("secret.2", 1)
    secured.broker.create_topic("open.3", 1)
    answer = joined(secured.stranger, "one", subscribed_topic_regex=".*")
    assert topics_of(secured, answer) == {"open.1", "open.2", "open.3"}


def test_a_named_topic_must_be_visible(secured: Secured) -> None:
    answer = joined(secured.stranger, "one", subscribed_topic_names=["open.1", "secret.1"])
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_who_may_not_see_a_topic_does_not_see_who_has_it(secured: Secured) -> None:
    def described(client: RawClient) -> tuple[int, int]:
        (group,) = client.ask(ConsumerGroupDescribeRequest(["g"]), 1).groups
        return group.error_code, len(group.members)

    joined(secured.stranger, "one", subscribed_topic_names=["open.1"])
    assert described(secured.stranger) == (0, 1)
    joined(secured.admin, "two", subscribed_topic_names=["secret.1"])
    assert described(secured.stranger) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    assert described(secured.admin) == (0, 2)
