"""Properties in a cluster of ZooKeeper: the broker that is asked writes them itself, and tells all others."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.cluster.fake_zookeeper import NODE_ID, ControlledBroker, FakeZookeeper, controlled
from tests.broker.cluster.test_config_forwarding import BROKER, CLIENTS, GROUP, LOGGER, TOPIC, change
from tests.broker.cluster.zookeeper_requests import led, partition, topic
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.zookeeper.session import Znode
from tidelog.broker.cluster.zookeeper.zookeeper_plane import ZookeeperPlane
from tidelog.broker.configs import config_forwarding
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from tidelog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

OWN, ALL = f"/config/brokers/{NODE_ID}", "/config/brokers/<default>"
RATE = "leader.replication.throttled.rate"


@pytest.fixture
def zookeeper() -> FakeZookeeper:
    return FakeZookeeper()


@pytest.fixture
def one(tmp_path: Path, zookeeper: FakeZookeeper) -> Iterator[ControlledBroker]:
    with controlled(tmp_path, zookeeper) as broker:
        assert broker.ask(led(topic("t", partition(0))), 4).partition_errors[0].error_code == 0
        yield broker


def changed(broker: ControlledBroker, *resources: IncrementalResource, validate_only: bool = False) -> list[str]:
    with RawClient(("127.0.0.1", broker.port), timeout_s=PATIENCE_S) as client:
        answer = client.ask(IncrementalAlterConfigsRequest(list(resources), validate_only), 1)
    return [ErrorCode(one.error_code).name for one in answer.responses]


def stored(zookeeper: FakeZookeeper, path: str) -> Any:
    znode: Znode | None = zookeeper.znodes.get(path)
    return None if znode is None else json.loads(znode.data)["config"]


def notes(zookeeper: FakeZookeeper) -> list[Any]:
    return [json.loads(zookeeper.znodes[f"/config/changes/{name}"].data) for name in zookeeper.children("/config/changes")]


def described(broker: ControlledBroker, resource_type: int, name: str) -> dict[str, str | None]:
    with RawClient(("127.0.0.1", broker.port), timeout_s=PATIENCE_S) as client:
        (answer,) = client.ask(DescribeConfigsRequest([DescribeConfigsResource(resource_type, name, None)]), 4).results
    assert answer.error_code == 0, answer.error_message
    return {one.name: one.value for one in answer.configs}


def test_what_is_set_and_deleted(one: ControlledBroker, zookeeper: FakeZookeeper) -> None:
    assert (
        changed(
            one,
            change(BROKER, str(NODE_ID), (RATE, "1000"), ("log.cleaner.threads", "2")),
            change(BROKER, "", ("message.max.bytes", "2000000")),
            change(TOPIC, "t", ("retention.ms", "7")),
        )
        == ["NONE"] * 3
    )
    assert stored(zookeeper, OWN) == {RATE: "1000", "log.cleaner.threads": "2"}
    assert stored(zookeeper, ALL) == {"message.max.bytes": "2000000"}
    assert stored(zookeeper, "/config/topics/t") == {"retention.ms": "7"}
    paths = [f"brokers/{NODE_ID}", "brokers/<default>", "topics/t"]
    assert notes(zookeeper) == [{"version": 2, "entity_path": path} for path in paths]
    # It is in effect when the answer comes.
    assert one.on_loop(lambda: one.node.dynamic_settings.throttled_rate(RATE)) == 1000
    assert one.on_loop(lambda: one.node.manager.logs[TopicPartition("t", 0)].config.retention_ms) == 7
    assert described(one, BROKER, "")["message.max.bytes"] == "2000000"
    assert described(one, BROKER, str(NODE_ID))[RATE] == "1000"
    assert changed(one, change(BROKER, str(NODE_ID), (RATE, None), operation=1)) == ["NONE"]
    assert stored(zookeeper, OWN) == {"log.cleaner.threads": "2"}
    assert one.on_loop(lambda: one.node.dynamic_settings.throttled_rate(RATE)) == 2**63 - 1


def test_the_older_request_sets_all(one: ControlledBroker, zookeeper: FakeZookeeper) -> None:
    zookeeper.put(OWN, {"version": 1, "config": {"log.cleaner.threads": "2"}})
    resources = [
        AlterConfigsResource(BROKER, str(NODE_ID), [AlterableConfig(RATE, "5")]),
        AlterConfigsResource(LOGGER, str(NODE_ID), [AlterableConfig("root", "INFO")]),
    ]
    with RawClient(("127.0.0.1", one.port)) as client:
        answer = client.ask(AlterConfigsRequest(resources), 1)
    assert [ErrorCode(one.error_code).name for one in answer.responses] == ["NONE", "INVALID_REQUEST"]
    assert stored(zookeeper, OWN) == {RATE: "5"}


def test_what_is_only_validated_or_refused_is_not_written(one: ControlledBroker, zookeeper: FakeZookeeper) -> None:
    mine = change(BROKER, str(NODE_ID), (RATE, "1000"))
    assert changed(one, mine, change(TOPIC, "t", ("retention.ms", "7")), validate_only=True) == ["NONE", "NONE"]
    refused = [
        change(BROKER, "2", (RATE, "1")),
        change(BROKER, "one", (RATE, "1")),
        change(BROKER, str(NODE_ID), ("log.dirs", "/elsewhere")),
        change(BROKER, "", ("log.cleaner.threads", "many")),
        change(TOPIC, "t", ("retention.ms", "soon")),
        change(TOPIC, "none", ("retention.ms", "7")),
        change(TOPIC, "", ("retention.ms", "7")),
        change(CLIENTS, "c", ("interval.ms", "5")),
        change(GROUP, "g", ("consumer.session.timeout.ms", "50000")),
    ]
    codes = ["INVALID_REQUEST"] * 4 + ["INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION"] + ["INVALID_REQUEST"] * 3
    assert changed(one, *refused) == codes
    assert notes(zookeeper) == [] and stored(zookeeper, OWN) is None and stored(zookeeper, "/config/topics/t") is None


def test_loggers_change_here(one: ControlledBroker, zookeeper: FakeZookeeper) -> None:
    logger = logging.getLogger("tidelog.broker")
    before = logger.level
    try:
        assert changed(one, change(LOGGER, str(NODE_ID), ("tidelog.broker", "ERROR"))) == ["NONE"]
        assert logger.level == logging.ERROR and notes(zookeeper) == []
    finally:
        logger.setLevel(before)


def test_a_change_by_another_writer_is_kept(one: ControlledBroker, zookeeper: FakeZookeeper) -> None:
    """What others wrote counts, not what is known of it here; and of two that write at a time, both."""
    zookeeper.put(OWN, {"version": 1, "config": {"log.cleaner.threads": "2"}})  # Nobody has told.
    assert changed(one, change(BROKER, str(NODE_ID), (RATE, "1000"))) == ["NONE"]
    assert stored(zookeeper, OWN) == {RATE: "1000", "log.cleaner.threads": "2"}

    def other_writer(path: str) -> None:
        if path == OWN:
            zookeeper.after_read = lambda path: None
            zookeeper.put(OWN, {"version": 1, "config": {"num.io.threads": "9"}})

    zookeeper.after_read = other_writer
    assert changed(one, change(BROKER, str(NODE_ID), ("log.cleaner.threads", "3"))) == ["NONE"]
    assert stored(zookeeper, OWN) == {"num.io.threads": "9", "log.cleaner.threads": "3"}


def test_zookeeper_is_away(one: ControlledBroker, zookeeper: FakeZookeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change waits for it, all of a request together no longer than clients wait."""
    monkeypatch.setattr(config_forwarding, "TIMEOUT_S", 0.5)
    zookeeper.is_away = True
    wanted = [change(BROKER, str(NODE_ID), (RATE, "1000")), change(TOPIC, "t", ("retention.ms", "7"))]
    assert changed(one, *wanted) == ["REQUEST_TIMED_OUT"] * 2
    monkeypatch.setattr(config_forwarding, "TIMEOUT_S", PATIENCE_S)
    with RawClient(("127.0.0.1", one.port), timeout_s=PATIENCE_S) as client:
        client.send(IncrementalAlterConfigsRequest(wanted), 1)
        zookeeper.is_away = False
        assert [answer.error_code for answer in client.receive().responses] == [0, 0]
    assert stored(zookeeper, OWN) == {RATE: "1000"} and stored(zookeeper, "/config/topics/t") == {"retention.ms": "7"}


@pytest.mark.parametrize(("protocol", "version"), [("0.9.0.1", 1), ("0.10.0", 1), ("0.10.1", 2), ("3.9", 2)])
def test_older_brokers_are_told_what_they_understand(tmp_path: Path, protocol: str, version: int) -> None:
    """One that is told more stops at it, and hears of no later change: only topics' properties had a first version."""
    zookeeper = FakeZookeeper()
    with controlled(tmp_path, zookeeper, inter_broker_protocol_version=protocol) as one:
        state = led(topic("t", partition(0)))
        assert not one.ask(state, 4).error_code
        assert changed(one, change(BROKER, str(NODE_ID), (RATE, "9")), change(TOPIC, "t", ("retention.ms", "7"))) == ["NONE"] * 2
        assert stored(zookeeper, OWN) == {RATE: "9"}
        assert one.on_loop(lambda: one.node.dynamic_settings.throttled_rate(RATE)) == 9
    if version == 1:
        assert notes(zookeeper) == [{"version": 1, "entity_type": "topics", "entity_name": "t"}]
    else:
        assert [note["version"] for note in notes(zookeeper)] == [2, 2]


def test_clients_are_told_the_versions_of_this_broker(one: ControlledBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the controller takes: 0.10 has no such request."""
    monkeypatch.setattr(ZookeeperPlane, "controller_versions", {1: (0, 1)})
    with RawClient(("127.0.0.1", one.port)) as client:
        served = {api.api_key: api.max_version for api in client.ask(ApiVersionsRequest(), 0).api_keys}
    assert (served[33], served[44]) == (2, 1)


def test_others_are_heard(one: ControlledBroker, zookeeper: FakeZookeeper) -> None:
    zookeeper.put(ALL, {"version": 1, "config": {RATE: "77"}})
    zookeeper.put("/config/changes/config_change_9999999999", {"version": 2, "entity_path": "brokers/<default>"})
    wait_until(lambda: one.on_loop(lambda: one.node.dynamic_settings.throttled_rate(RATE)) == 77, "the change", PATIENCE_S)
