"""The pairs: Kafka 3.9.1 for message format v2, Kafka 2.4.1 for v0 and v1, each beside a broker of Tidelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.deliberate import RAN
from tests.interop.differential.pair import Pair, Side
from tests.kafka import Kafka391
from tests.kafka.java import wait_until
from tidelog.broker.broker import Broker
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

BOTH: dict[str, Any] = {
    "num.partitions": "1",
    "auto.create.topics.enable": "true",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.size": "4",
    "offset.metadata.max.bytes": "50",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    # What each does by the clock, it does at a moment of its own: not while answers are compared.
    "log.initial.task.delay.ms": "7200000",
    "log.retention.check.interval.ms": "7200000",
    "offsets.retention.check.interval.ms": "7200000",
    "producer.id.expiration.check.interval.ms": "7200000",
}

NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""What a coordinator says that has not read its partition."""
NAMES = [f"any-{number}" for number in range(30)]
"""Some for each of the coordinators' three partitions."""


def pytest_runtest_call(item: pytest.Item) -> None:
    RAN.add(item.path.name)


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("differential")
    with Kafka391(folder / "kafka", BOTH) as kafka, Broker(folder / "tidelog", **BOTH) as tidelog:
        both = Pair(address(kafka.bootstrap), address(tidelog.bootstrap_servers))
        yield both
        both.close()


@pytest.fixture(scope="session")
def coordinators(pair: Pair) -> None:
    """Both have the topics of their coordinators, which they create when somebody asks for one.

    And the first producer id is gone: it may be 0, which stands in answers for no producer at all.
    """
    for side in pair.sides:
        wait_for_coordinators(side)


def wait_for_coordinators(side: Side) -> None:
    wait_until(lambda: is_well(side, FindCoordinatorRequest("any", 0)), f"{side.name}'s coordinator of groups")
    wait_until(lambda: is_well(side, FindCoordinatorRequest("any", 1)), f"{side.name}'s coordinator of transactions")
    # There are coordinators: each has yet to read its partition.
    wait_until(lambda: knows_groups(side), f"{side.name}'s groups")
    wait_until(lambda: knows_transactions(side), f"{side.name}'s transactions")
    # Kafka has none to give until its controller has given it some.
    wait_until(lambda: is_well(side, InitProducerIdRequest(None, 1000)), f"{side.name}'s first producer id")


def is_well(side: Side, asked: Message) -> bool:
    side.ask(asked, 1, has_answer=True)
    return bool(side.last.error_code == ErrorCode.NONE)


def knows_groups(side: Side) -> bool:
    side.ask(DescribeGroupsRequest(NAMES), 5, has_answer=True)
    return not any(one.error_code in NOT_YET for one in side.last.groups)


def knows_transactions(side: Side) -> bool:
    side.ask(DescribeTransactionsRequest(NAMES), 0, has_answer=True)
    return not any(one.error_code in NOT_YET for one in side.last.transaction_states)
