"""Settings of the broker that change while it runs: they take effect, are reported, are kept, and are refused as a whole."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.broker.test_configs import BROKER, DEFAULT, DELETE, SET, STATIC_BROKER, change, describe, replace, synonyms
from tests.patience import PATIENCE_S
from tidelog.broker.settings.dynamic_settings import FOLLOWER_RATE, LEADER_RATE
from tidelog.metadata.records import BROKER_RESOURCE
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

DYNAMIC_BROKER, DYNAMIC_DEFAULT = 2, 3
LONG = 5


def set_on(client: RawClient, name: str, **settings: str) -> None:
    changes = [(key.replace("_", "."), SET, value) for key, value in settings.items()]
    assert change(client, name, *changes, resource_type=BROKER) == ErrorCode.NONE


def kept(broker: RunningBroker) -> dict[str, dict[str, str]]:
    configs = broker.node.manager.metadata.image.configs
    return {name: dict(settings) for (kind, name), settings in configs.items() if kind == BROKER_RESOURCE}


def test_topics_have_new_defaults_at_once(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    broker.create_topic("b", segment_bytes="9000", retention_ms="5")
    set_on(client, "", log_segment_bytes="2000000", log_retention_ms="7000")
    set_on(client, "1", log_retention_ms="6000")
    broker.create_topic("c")
    configs = [broker.node.manager.log(name, 0).config for name in "abc"]
    assert [(one.segment_bytes, one.retention_ms) for one in configs] == [(2000000, 6000), (9000, 5), (2000000, 6000)]
    assert change(client, "1", ("log.retention.ms", DELETE, None), resource_type=BROKER) == ErrorCode.NONE
    assert [broker.node.manager.log(name, 0).config.retention_ms for name in "abc"] == [7000, 5, 7000]
    assert replace(client, "", BROKER) == ErrorCode.NONE
    assert [broker.node.manager.log(name, 0).config.segment_bytes for name in "abc"] == [1 << 30, 9000, 1 << 30]


def test_a_finer_name_wins_over_what_the_broker_was_started_with(start_broker: StartBroker) -> None:
    broker = start_broker(log_retention_hours="1", segment_bytes="5000")
    broker.create_topic("a")
    with broker.client() as client:
        set_on(client, "1", log_retention_ms="9000", log_segment_bytes="6000")
    config = broker.node.manager.log("a", 0).config
    assert (config.retention_ms, config.segment_bytes) == (9000, 6000)


def test_sources(start_broker: StartBroker) -> None:
    broker = start_broker(log_retention_ms="-1")
    broker.create_topic("a", flush_ms="5")
    with broker.client() as client:
        set_on(client, "", log_retention_ms="7000", num_io_threads="9")
        set_on(client, "1", log_retention_ms=" 6000 ")
        set_on(client, "1", of_a_plugin="secret")
        told = describe(client, "1", BROKER, include_synonyms=True)
        of_all = describe(client, "", BROKER, include_synonyms=True)
        of_topic = describe(client, "a", include_synonyms=True)
    where = [("log.retention.ms", " 6000 ", DYNAMIC_BROKER), ("log.retention.ms", "7000", DYNAMIC_DEFAULT)]
    where += [("log.retention.ms", "-1", STATIC_BROKER), ("log.retention.hours", "168", DEFAULT)]
    assert (told["log.retention.ms"].value, told["log.retention.ms"].config_source) == ("6000", DYNAMIC_BROKER)
    assert synonyms(told["log.retention.ms"]) == where
    assert synonyms(of_topic["retention.ms"]) == where
    assert of_topic["retention.ms"].config_source == DYNAMIC_BROKER
    assert {name: (one.value, synonyms(one)) for name, one in of_all.items()} == {
        "log.retention.ms": ("7000", [("log.retention.ms", "7000", DYNAMIC_DEFAULT)]),
        "num.io.threads": ("9", [("num.io.threads", "9", DYNAMIC_DEFAULT)]),
    }
    # A value of which nobody knows the kind may be a secret.
    assert (told["of.a.plugin"].value, told["of.a.plugin"].is_sensitive, synonyms(told["of.a.plugin"])[0][1]) == (
        None,
        True,
        None,
    )


def test_a_log_does_not_tell_what_may_be_a_secret(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    set_on(client, "1", my_reporter_sasl_jaas_config='x required password="hunter2";', log_retention_ms="5000")
    set_on(client, "", of_a_plugin="hunter2")
    resource = AlterConfigsResource(
        BROKER, "1", [AlterableConfig("other.secret", SET, "hunter2"), AlterableConfig("log.retention.ms", SET, "many")]
    )
    (refused,) = client.ask(IncrementalAlterConfigsRequest([resource]), 1).responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "log.retention.ms=many" in (refused.error_message or "")
    assert "hunter2" not in caplog.text + (refused.error_message or "")
    assert "broker 1: settings changed log.retention.ms=5000 my.reporter.sasl.jaas.config=[hidden]" in caplog.text
    assert "broker (all): settings changed of.a.plugin=[hidden]" in caplog.text


def test_a_name_writes_no_line_of_its_own(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    resource = AlterConfigsResource(BROKER, "1", [AlterableConfig("of.a.plugin\nall is well", SET, "x")])
    client.ask(IncrementalAlterConfigsRequest([resource]), 1)
    assert any("all is well" in record.getMessage() for record in caplog.records)
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_a_start_knows_them(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "kept")
    broker.create_topic("a")
    with broker.client() as client:
        set_on(client, "", log_segment_bytes="2000000", max_connections="77", log_cleaner_backoff_ms="123")
        set_on(client, "1", producer_id_expiration_ms="5000", num_io_threads="9", of_a_plugin="x")
    before = kept(broker)
    broker.stop()
    broker = start_broker(tmp_path / "kept")
    assert kept(broker) == before
    log, config = broker.node.manager.log("a", 0), broker.node.manager.config
    assert (log.config.segment_bytes, log.producer_state.producer_id_expiration_ms) == (2000000, 5000)
    assert (config.cleaner_backoff_ms, broker.node.config.max_connections) == (123, 77)


def test_what_is_not_of_topics(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    set_on(client, "1", log_cleaner_backoff_ms="123", log_cleaner_dedupe_buffer_size="4000000", producer_id_expiration_ms="5")
    set_on(client, "1", transaction_partition_verification_enable="false", max_connections_per_ip="50")
    manager = broker.node.manager
    assert manager.log("a", 0).producer_state.producer_id_expiration_ms == 5
    assert (manager.config.cleaner_backoff_ms, manager.config.cleaner_dedupe_buffer_bytes) == (123, 4000000)
    config = broker.node.config
    assert (config.transaction_partition_verification_enable, config.max_connections_per_ip) == (False, 50)


def test_a_limit_of_connections_holds_at_once(broker: RunningBroker, client: RawClient) -> None:
    set_on(client, "", max_connections_per_ip="1")
    with socket.create_connection(broker.address, timeout=PATIENCE_S) as refused:
        assert refused.recv(1) == b""
    set_on(client, "", max_connections_per_ip="2")
    with broker.client() as another:
        assert describe(another, "", BROKER)["max.connections.per.ip"].value == "2"


REFUSED = {
    "static": ("1", {"num.partitions": "5"}),
    "a coarse unit": ("1", {"log.retention.hours": "5"}),
    "no number": ("1", {"log.retention.ms": "x"}),
    "no number of threads": ("1", {"num.io.threads": "x"}),
    "out of range": ("1", {"log.segment.bytes": "3"}),
    "too few threads": ("", {"num.io.threads": "0"}),
    "no kind of timestamp": ("", {"log.message.timestamp.type": "sometimes"}),
    "a small cleaner": ("", {"log.cleaner.dedupe.buffer.size": "5"}),
    "listeners": ("1", {"listeners": "PLAINTEXT://127.0.0.1:1"}),
    "security": ("1", {"listener.name.x.ssl.keystore.location": "/tmp"}),
    "a limit": ("", {"max.connections": "-5"}),
    "one of two": ("", {"log.retention.ms": "5", "log.segment.bytes": "x"}),
}


def test_what_is_refused_changes_nothing(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("a")
    before = broker.node.manager.log("a", 0).config
    for what, (name, settings) in REFUSED.items():
        changes = [(key, SET, value) for key, value in settings.items()]
        assert change(client, name, *changes, resource_type=BROKER) == ErrorCode.INVALID_REQUEST, what
    assert change(client, "1", ("log.retention.ms", SET, "5"), resource_type=BROKER, dry=True) == ErrorCode.NONE
    assert kept(broker) == {}
    assert broker.node.manager.log("a", 0).config == before


def test_a_disk_that_refuses(broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("a")
    set_on(client, "1", log_retention_ms="5000")

    def full(fd: int, data: object, position: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        changes = [("log.retention.ms", SET, "6000"), ("max.connections", SET, "5")]
        assert change(client, "1", *changes, resource_type=BROKER) == ErrorCode.KAFKA_STORAGE_ERROR
    assert kept(broker) == {"1": {"log.retention.ms": "5000"}}
    assert broker.node.manager.log("a", 0).config.retention_ms == 5000
    assert broker.node.config.max_connections == 2**31 - 1
    set_on(client, "1", log_retention_ms="7000")
    assert broker.node.manager.log("a", 0).config.retention_ms == 7000


def test_throttled_rates_of_replicas(broker: RunningBroker, client: RawClient) -> None:
    """As kafka-reassign-partitions sets them; this broker's own wins over all brokers'."""
    rate = broker.node.dynamic_settings.throttled_rate
    assert rate(LEADER_RATE) == rate(FOLLOWER_RATE) == 2**63 - 1
    set_on(client, "", leader_replication_throttled_rate="5000", follower_replication_throttled_rate="700")
    set_on(client, "1", leader_replication_throttled_rate=" 6000 ")
    assert (rate(LEADER_RATE), rate(FOLLOWER_RATE)) == (6000, 700)
    told = describe(client, "1", BROKER)["leader.replication.throttled.rate"]
    assert (told.value, told.config_type, told.is_sensitive) == ("6000", LONG, False)
    for value in ("-1", "fast", str(2**63)):
        assert change(client, "1", (FOLLOWER_RATE, SET, value), resource_type=BROKER) == ErrorCode.INVALID_REQUEST
    assert change(client, "", (FOLLOWER_RATE, DELETE, None), resource_type=BROKER) == ErrorCode.NONE
    assert rate(FOLLOWER_RATE) == 2**63 - 1
