"""A broker whose ZooKeeper says something unexpected, or nothing: one clear error, or a wait that says what it waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.cluster.fake_zookeeper import NODE_ID, ControlledBroker, FakeZookeeper, controlled
from tests.broker.cluster.zookeeper_requests import broker, led, metadata, partition, topic
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.clock import SystemClock
from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.model import TopicPartition

GARBAGE = [b"", b"\xff\xfe", b"{", b"[]", b"null", b"7", b'"text"', b"{}"]


@pytest.fixture
def zookeeper() -> FakeZookeeper:
    return FakeZookeeper()


def started(folder: Path, zookeeper: FakeZookeeper) -> ControlledBroker:
    return ControlledBroker(folder / "data", zookeeper, SystemClock(), controlled_shutdown_enable="false")


@contextmanager
def refused(folder: Path, zookeeper: FakeZookeeper, kind: type[TidelogError], match: str) -> Iterator[None]:
    """A broker that does not start, for that reason."""
    one = started(folder, zookeeper)
    try:
        with pytest.raises(kind, match=match):
            one.begin()
        yield
    finally:
        one.stop()


class TestGarbage:
    @pytest.mark.parametrize("data", [*GARBAGE, b'{"id":7}', b'{"id":""}'])
    def test_of_the_clusters_id(self, tmp_path, zookeeper, data):
        zookeeper.put("/cluster/id", data)
        with refused(tmp_path, zookeeper, TidelogError, "/cluster/id"):
            assert not (tmp_path / "data" / "meta.properties").exists()

    @pytest.mark.parametrize(
        "data",
        [
            *GARBAGE[:-1],
            b'{"partitions":[]}',
            b'{"partitions":{"x":[1]}}',
            b'{"partitions":{"0":"1"}}',
            b'{"partitions":{"0":[1]},"topic_id":"?"}',
        ],
    )
    def test_of_a_topic(self, tmp_path, zookeeper, data):
        """Its replica is not taken for a stray, as it would be where nothing names it."""
        with controlled(tmp_path, zookeeper) as one:
            assert one.ask(led(topic("t", partition(0))), 4).partition_errors[0].error_code == 0
        zookeeper.put("/brokers/topics/t", data)
        with refused(tmp_path, zookeeper, TidelogError, "/brokers/topics/t"):
            assert (tmp_path / "data" / "t-0").is_dir()

    def test_of_what_may_be_wrong(self, tmp_path, zookeeper):
        """Properties, the controller, changes: what is no JSON counts as nothing."""
        with controlled(tmp_path, zookeeper) as one:
            for data in GARBAGE:
                zookeeper.put("/controller", data)
                zookeeper.put("/config/topics/t", data)
                zookeeper.put("/config/changes/config_change_1", data)
                zookeeper.put(f"/config/changes/config_change_{len(data)}", json.dumps({"entity_path": "topics/t"}))
                zookeeper.remove("/config/changes/config_change_1")
            assert one.ask(led(topic("t", partition(0))), 4).partition_errors[0].error_code == 0
            zookeeper.put("/config/topics/t", {"version": 1, "config": {"retention.ms": "7", "segment.bytes": "none"}})
            zookeeper.put("/config/changes/config_change_9", {"entity_path": "topics/t"})
            log = one.node.manager.logs[TopicPartition("t", 0)]
            wait_until(lambda: one.on_loop(lambda: log.config.retention_ms) == 7, "the properties", PATIENCE_S)

    def test_of_properties_that_may_be_secrets(self, tmp_path, zookeeper, caplog):
        """The log says where something is wrong with them, not what they are."""
        data = b'{"version":1,"config":{"a.password":"hunter2"'
        with controlled(tmp_path, zookeeper):
            zookeeper.put("/config/brokers/1", data)
            zookeeper.put("/config/changes/config_change_1", {"entity_path": "brokers/1"})
            wait_until(lambda: f"is not valid JSON ({len(data)} bytes)" in caplog.text, "the warning", PATIENCE_S)
        assert "hunter2" not in caplog.text

    @pytest.mark.parametrize("data", GARBAGE)
    def test_of_producers_ids(self, tmp_path, zookeeper, data):
        with controlled(tmp_path, zookeeper) as one:
            zookeeper.put("/latest_producer_id_block", data)
            with pytest.raises(TidelogError, match="latest_producer_id_block"):
                one.run(one.node.plane.producer_ids())


def test_another_broker_has_the_id(tmp_path, zookeeper, caplog):
    """It waits, whoever that is, and registers once the other's session is over."""
    zookeeper.put(f"/brokers/ids/{NODE_ID}", {"port": 1}, owner=zookeeper.next_id())
    one = started(tmp_path, zookeeper)
    try:
        wait_until(lambda: "another broker with broker.id=1 is running" in caplog.text, "the reason", PATIENCE_S)
        assert not one.is_started.is_set()
        zookeeper.remove(f"/brokers/ids/{NODE_ID}")
        one.begin()
    finally:
        one.stop()


def test_the_folder_of_another_cluster(tmp_path, zookeeper):
    with controlled(tmp_path, zookeeper) as one:
        assert one.ask(led(topic("t", partition(0))), 4).partition_errors[0].error_code == 0
    zookeeper.put("/cluster/id", {"version": "1", "id": "another"})
    with refused(tmp_path, zookeeper, InvalidArgumentError, "the folder belongs to a different cluster"):
        assert (tmp_path / "data" / "t-0").is_dir()


def test_a_slow_one(tmp_path, zookeeper):
    """Requests for topics that are known are answered meanwhile; a new topic's properties are waited for."""
    with controlled(tmp_path, zookeeper) as one:
        assert one.ask(led(topic("t", partition(0))), 4).partition_errors[0].error_code == 0
        zookeeper.held.clear()
        assert one.ask(metadata([broker(NODE_ID, one.port)], [topic("t", partition(0))]), 6).error_code == 0
        zookeeper.put("/config/topics/new", {"version": 1, "config": {"retention.ms": "7"}})
        one.controller.send(led(topic("new", partition(0))), 4)
        zookeeper.held.set()
        assert one.controller.receive().partition_errors[0].error_code == 0
        assert one.on_loop(lambda: one.node.manager.logs[TopicPartition("new", 0)].config.retention_ms) == 7


def test_one_that_is_away(tmp_path, zookeeper):
    """A new topic's properties cannot be known: the controller gets no answer, and asks again."""
    with controlled(tmp_path, zookeeper) as one:
        zookeeper.is_away = True
        one.controller.send(led(topic("new", partition(0))), 4)
        assert one.controller.closed()
        zookeeper.is_away = False
        one.connect()
        assert one.ask(led(topic("new", partition(0))), 4).partition_errors[0].error_code == 0
