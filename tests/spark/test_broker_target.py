"""The sink's commits to a broker, without Spark: one transaction each, replays known, whatever else is refused in clear words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.client.scripted import VERSIONS, ScriptedBroker
from tests.spark.broker_sink import PARTITIONS, sink_broker, sink_client, sink_options, spooled, values  # noqa: F401
from tidelog.client.client import Client
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.client.produce.transaction_coordinator import TransactionCoordinator
from tidelog.clock import ManualClock
from tidelog.errors import (
    BrokerError,
    BrokerUnreachableError,
    InvalidArgumentError,
    ProducerFencedError,
    StorageError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.spark.sink.broker_target import GROUP_PREFIX, commit_to_broker, last_epoch, partition_counts, send_from_task
from tidelog.spark.sink.epochs import Epoch
from tidelog.spark.sink.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.sink.spool import SpooledBatches


def test_a_micro_batch_and_its_replay(client: Client, options: SinkOptions) -> None:
    group = f"{GROUP_PREFIX}{options.transactional_id}"
    query = options.query_id or ""
    tasks = [[("a", value) for value in range(50)], [("a", 50), ("b", 51)], []]
    commit_to_broker(options, [spooled(options, *rows) for rows in tasks], 7)
    assert (values(client, "a"), values(client, "b")) == (list(range(51)), [51])
    position = (8, Epoch(query, 7).to_json())
    assert committed_offsets(client.cluster, group, None) == {TopicPartition("a", 0): position, TopicPartition("b", 0): position}

    commit_to_broker(options, [spooled(options, *rows) for rows in tasks], 7)
    assert values(client, "a", "read_uncommitted") == list(range(51))
    # The next one goes to other topics: it is the last one all the same.
    commit_to_broker(options, [spooled(options, ("c", 1))], 8)
    commit_to_broker(options, [spooled(options, ("c", 1))], 8)
    assert values(client, "c") == [1]
    assert last_epoch(client.cluster, group, query) == Epoch(query, 8)
    with pytest.raises(InvalidArgumentError, match="checkpoint is older"):
        commit_to_broker(options, [spooled(options, ("a", 99))], 7)
    # Another query with the same name starts over.
    another = replace(options, query_id="another")
    commit_to_broker(another, [spooled(options, ("c", 2))], 0)
    commit_to_broker(another, [spooled(options, ("c", 2))], 0)
    assert values(client, "c") == [1, 2]


def test_a_batch_write(client: Client, options: SinkOptions, tmp_path: Path) -> None:
    commit_to_broker(options, [spooled(options, *(("whole", value) for value in range(1_000)), folder=tmp_path)], None)
    assert values(client, "whole") == list(range(1_000))
    assert committed_offsets(client.cluster, f"{GROUP_PREFIX}{options.transactional_id}", None) == {}


def test_a_commit_that_fails_leaves_nothing(client: Client, options: SinkOptions, tmp_path: Path) -> None:
    first, second = (spooled(options, ("lost", value), folder=tmp_path) for value in (1, 2))
    second.delete()
    with pytest.raises(StorageError, match="spoolDir"):
        commit_to_broker(options, [first, second], 3)
    assert values(client, "lost") == []
    commit_to_broker(options, [first], 3)
    assert values(client, "lost") == [1]


def test_rows_that_are_seen_later_are_written(
    client: Client, options: SinkOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the write failed, it would be repeated, and the rows would be there twice."""

    def nobody(coordinator: TransactionCoordinator, producer: Producer) -> None:
        raise BrokerUnreachableError("no coordinator", path="there")

    monkeypatch.setattr(TransactionCoordinator, "wait_until_visible", nobody)
    commit_to_broker(options, [spooled(options, ("later", 1))], None)
    assert values(client, "later") == [1]
    assert [record.message for record in caplog.records] == [
        "the rows are committed, but readers may see them later: no coordinator (there)"
    ]


def test_a_driver_that_is_overtaken(client: Client, options: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one driver commits, another one of the same query comes and does it."""
    batches = [spooled(options, ("race", 1))]
    commit = BatchAppender.commit

    def overtaken(appender: BatchAppender) -> None:
        monkeypatch.setattr(BatchAppender, "commit", commit)
        commit_to_broker(options, batches, 1)
        commit(appender)

    monkeypatch.setattr(BatchAppender, "commit", overtaken)
    with pytest.raises(ProducerFencedError, match="option transactionTimeout"):
        commit_to_broker(options, batches, 1)
    assert values(client, "race") == [1]


def test_tasks_send_themselves(client: Client, options: SinkOptions) -> None:
    one = spooled(options, *(("sent", value) for value in range(100)))
    assert send_from_task(options, one.batches()) == 100
    assert send_from_task(options, iter(())) == 0
    assert values(client, "sent", "read_uncommitted") == list(range(100))


def test_partitions_of_topics(broker: tidelog.Broker, options: SinkOptions, tmp_path: Path) -> None:
    with partition_counts(options) as partitions:
        assert partitions("new") == PARTITIONS
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidelog.client.connections.cluster.CREATION_MS", 50)
        with tidelog.Broker(tmp_path / "data", auto_create_topics_enable=False) as strict:
            there = replace(options, brokers=strict.bootstrap_servers)
            with (
                pytest.raises(UnknownTopicOrPartitionError, match="the broker does not create it"),
                partition_counts(there) as partitions,
            ):
                partitions("new")


def test_where_there_are_no_transactions(options: SinkOptions, tmp_path: Path) -> None:
    with (
        ScriptedBroker(lambda request, version: None, VERSIONS) as old,
        pytest.raises(UnsupportedVersionError, match="do not support transactions; set deliveryGuarantee to at-least-once"),
    ):
        commit_to_broker(replace(options, brokers=old.address), [], 1)
    with tidelog.Broker(tmp_path / "data", log_message_format_version="0.10.2") as v1:
        there = replace(options, brokers=v1.bootstrap_servers)
        batches = spooled(there, ("old", 1))
        with pytest.raises(UnsupportedForMessageFormatError, match="deliveryGuarantee to at-least-once"):
            commit_to_broker(there, [batches], 1)
        assert send_from_task(there, batches.batches()) == 1


class Large:
    """Batches that a task handed over, which say to be as large as they are reported."""

    def __init__(self, of: SpooledBatches, size_bytes: int) -> None:
        self.keys, self.batches, self.size_bytes = of.keys, of.batches, size_bytes


def test_the_timeout_grows_with_the_commit_as_far_as_brokers_allow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tidelog.Broker(tmp_path / "data", num_partitions=1, transaction_max_timeout_ms=100_000) as small:
        options = parse_sink_options({"path": small.bootstrap_servers}, streaming=True).for_query("q")
        asked: list[int] = []
        with pytest.MonkeyPatch.context() as patched:
            init = TransactionCoordinator.init

            def noting(self: TransactionCoordinator, timeout_ms: int, *more: Any) -> Any:
                asked.append(timeout_ms)
                return init(self, timeout_ms, *more)

            patched.setattr(TransactionCoordinator, "init", noting)
            for number, mebibytes in enumerate((1, 90, 2_000)):
                batches: Any = Large(spooled(options, ("large", number)), mebibytes << 20)
                commit_to_broker(options, [batches], number)
            assert asked == [60_000, 90_000, 2_000_000, 900_000, 300_000, 60_000]
            assert "a commit of 2000 MiB may take longer" in caplog.text and "transaction.max.timeout.ms" in caplog.text
            asked.clear()
            named = parse_sink_options({"path": small.bootstrap_servers, "transactionTimeout": "2s"}, streaming=True).for_query(
                "q"
            )
            commit_to_broker(named, [batches], 3)
            assert asked == [2_000]
        with tidelog.connect(small.bootstrap_servers) as client:
            assert values(client, "large") == [0, 1, 2, 2]


def test_a_transaction_that_is_open_for_too_long_says_what_to_turn(tmp_path: Path) -> None:
    """The broker aborts it while it is written. Without a named timeout the same commit goes through."""
    clock = ManualClock(1_600_000_000_000)
    with tidelog.Broker(tmp_path / "data", clock=clock, num_partitions=1) as broker, pytest.MonkeyPatch.context() as patched:
        given = {"path": broker.bootstrap_servers, "transactionTimeout": "2s"}
        options = parse_sink_options(given, streaming=True).for_query("q")
        batches = [spooled(options, ("slow", 1))]
        commit = BatchAppender.commit

        def slowly(appender: BatchAppender) -> None:
            appender.flush()
            for _ in range(3):
                clock.advance(10_000)
            commit(appender)

        patched.setattr(BatchAppender, "commit", slowly)
        for _ in range(2):
            with pytest.raises(ProducerFencedError) as raised:
                commit_to_broker(options, batches, 1, clock)
            for words in ("was open for 30000 ms", "timeout is 2000 ms", "transactionTimeout", "transaction.max.timeout.ms"):
                assert words in str(raised.value)
            assert "maxBytesPerTrigger" in str(raised.value) and "at-least-once" in str(raised.value)
        without = parse_sink_options({"path": broker.bootstrap_servers}, streaming=True).for_query("q")
        commit_to_broker(without, batches, 1, clock)
        with tidelog.connect(broker.bootstrap_servers) as client:
            assert values(client, "slow") == [1]


def test_a_timeout_that_brokers_refuse(options: SinkOptions) -> None:
    with pytest.raises(BrokerError, match=r"option transactionTimeout.*transaction\.max\.timeout\.ms"):
        commit_to_broker(replace(options, transaction_timeout_ms=2**31 - 1), [], 1)
