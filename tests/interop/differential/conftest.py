"""The pairs: Kafka 3.9.1 for message format v2, Kafka 2.4.1 for v0 and v1, each beside a broker of Tidelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.differential.pair import Pair
from tests.kafka import Kafka391
from tidelog.broker.embedded import Broker
from tidelog.wire.error_codes import ErrorCode
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
}


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
    for key_type in (0, 1):
        for side in pair.sides:
            for _ in range(1000):
                side.ask(FindCoordinatorRequest("any", key_type), 1, has_answer=True)
                if side.last.error_code == ErrorCode.NONE:
                    break
            assert side.last.error_code == ErrorCode.NONE, side.last
    for side in pair.sides:
        for _ in range(2000):
            # Kafka has none to give until its controller has given it some.
            side.ask(InitProducerIdRequest(None, 1000), 1, has_answer=True)
            if side.last.error_code == ErrorCode.NONE:
                break
        assert side.last.error_code == ErrorCode.NONE, side.last
