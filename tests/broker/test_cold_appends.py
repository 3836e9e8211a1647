"""Appends to a log whose files are not in memory, as after a start on a machine that is short of it: nothing is refused."""

from __future__ import annotations

import pytest

from tests.broker.cold import ColdDisk, forget
from tests.broker.conftest import StartBroker
from tests.broker.groups.offset_requests import Offset, commit
from tests.broker.produce_helpers import answer, message_set, produce_request
from tests.kafka.java import wait_until
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.wire.error_codes import ErrorCode

LOADING = {("t", 0): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_after_a_start(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a producer and by a coordinator: an index that nobody has asked for is read where the append needs it."""
    broker = start_broker(log_index_interval_bytes=0, offsets_topic_num_partitions=1, log_segment_bytes=4096)
    broker.create_topic("t")
    offsets = {("t", 0): Offset(1)}
    for count in range(1, 4):
        with broker.client() as client:
            for _ in range(5):
                assert answer(client.ask(produce_request(message_set(2)), 3)).error_code == 0
                wait_until(lambda client=client: commit(client, "g", offsets) == {("t", 0): 0}, "the coordinator")  # type: ignore[misc]
        broker.stop()
        broker.start()
        for topic in ("t", OFFSETS_TOPIC):
            forget(broker.on_loop(lambda topic=topic: broker.node.manager.logs[TopicPartition(topic, 0)].directory))
        with monkeypatch.context() as patched, broker.client() as client:
            ColdDisk(broker, patched)
            assert answer(client.ask(produce_request(message_set(2)), 3)).error_code == 0
            wait_until(lambda client=client: commit(client, "g", offsets) != LOADING, "the coordinator")  # type: ignore[misc]
            assert commit(client, "g", offsets) == {("t", 0): 0}
        assert broker.on_loop(lambda: broker.node.manager.logs[TopicPartition("t", 0)].log_end_offset) == count * 18
