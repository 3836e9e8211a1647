"""Groups: what a client and the commands report them, what a folder without a broker says, and offsets set to a time."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import tidelog
from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.broker.transactions.producers import TransactionalProducer
from tests.cli.conftest import run, run_ok
from tests.fields import check_fields
from tests.reader.golden import RELEASES
from tidelog import NewRecord
from tidelog.client.client import Client
from tidelog.client.consumer_groups import group_lag, group_reset
from tidelog.client.consumer_groups.group_reset import ToOffset
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.client.consumer_groups.next_records import next_records
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import BrokerError, InvalidArgumentError, NotFoundError, ProtocolError, UnknownTopicOrPartitionError
from tidelog.groups.commit_history import CommitHistory, histories_of
from tidelog.groups.group_table import group_of
from tidelog.groups.lag import (
    CatchUp,
    Commit,
    GroupRate,
    NextRecord,
    Precision,
    Retention,
    TimeToEnd,
    group_rate,
    retention_at_the_earliest,
    time_to_end,
    topic_rate,
)
from tidelog.groups.offsets_topic import partition_of
from tidelog.groups.positions import source_position
from tidelog.model import Isolation, TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.records import Record
from tidelog.spark.sink.epochs import Epoch
from tidelog.wire.coordinator.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.leave_group import LeaveGroupRequest
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NOW = 1_373_414_400_000  # 2013-07-10
MINUTE = 60_000
names = (f"name-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = start(tmp_path_factory.mktemp("groups") / "data")
    yield running
    running.stop()


def start(folder: Path, **others: Any) -> RunningBroker:
    properties = {"offsets_topic_num_partitions": 3, "auto_create_topics_enable": False, "group_initial_rebalance_delay_ms": 0}
    return RunningBroker(folder, ManualClock(NOW), **properties | others)


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with tidelog.connect(broker.bootstrap_servers, clock=broker.clock) as connected:
        yield connected


@pytest.fixture
def clock(broker: RunningBroker) -> ManualClock:
    assert isinstance(broker.clock, ManualClock)
    return broker.clock


@pytest.fixture
def topic(broker: RunningBroker, client: Client) -> str:
    """A topic of two partitions; in each ten records, a minute apart, the last one of now."""
    name = next(names)
    broker.create_topic(name, 2)
    fill(client, name, broker.clock.now_ms())
    return name


def fill(client: Client, topic: str, now_ms: int) -> None:
    client.produce_many(
        topic,
        [
            NewRecord(b"v%d" % at, timestamp=now_ms - (9 - at) * MINUTE, partition=partition)
            for at in range(10)
            for partition in (0, 1)
        ],
    )


def commit(client: Client, group: str, topic: str, *offsets: int) -> None:
    commit_offsets(client.cluster, group, {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)})


def join(broker: RunningBroker, group: str, topic: str) -> tuple[RawClient, str]:
    """Let a consumer join that reads the topic's first partition; return it, and its member id."""
    member = broker.client(client_id="reader")
    asked = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
    joined = member.ask(asked, 2)
    assignment = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopic(topic=topic, partitions=[0])])
    entry = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=encode_versioned(assignment, 0))
    sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[entry])
    assert member.ask(sync, 0).error_code == 0

    return member, joined.member_id


def add_transaction(broker: RunningBroker, topic: str, count: int, end: ControlType | None, timestamp: int) -> None:
    """Append a transaction to the topic's first partition, past the coordinator."""

    def work() -> None:
        log = broker.node.manager.log(topic, 0)
        at = log.log_end_offset
        producer = Producer(1_000 + at, 0, 0)
        made = [Record(at + n, timestamp, CREATE_TIME, None, b"v") for n in range(count)]
        log.append_as_follower(build_batch_v2(made, leader_epoch=0, producer=producer, is_transactional=True))
        if end is not None:
            marker = build_end_txn_marker(at + count, timestamp, end, Producer(producer.producer_id, 0, -1), leader_epoch=0)
            log.append_as_follower(marker)
        log.update_high_watermark(log.log_end_offset)

    broker.on_loop(work)


# --- Computations


@pytest.mark.parametrize(
    ("commits", "rate"),
    [
        ([], GroupRate(0, NOW - 10 * MINUTE)),
        ([(5, -60)], None),
        ([(5, -60), (65, -30)], GroupRate(2, NOW - MINUTE)),
        ([(5, -60), (65, -1)], GroupRate(60_000 / 59_000, NOW - MINUTE)),
        # Silent for longer than it is used to: time goes on.
        ([(0, -100), (10, -90)], GroupRate(0.1, NOW - 100_000)),
        # Back, and on from there.
        ([(900, -100), (0, -20), (10, -10), (20, 0)], GroupRate(1, NOW - 20_000)),
        ([(5, -60), (4, -30)], None),
        ([(1, -0.2), (2, -0.1)], None),
    ],
)
def test_a_groups_rate(commits: list[tuple[int, float]], rate: GroupRate | None) -> None:
    known = [Commit(offset, NOW + round(seconds * 1000)) for offset, seconds in commits]
    assert group_rate(known, NOW, 10 * MINUTE) == rate


@pytest.mark.parametrize(
    ("log_start", "then", "rate"),
    [
        (None, None, 0),
        (None, NextRecord(40, -1), None),
        (NextRecord(0, NOW - MINUTE), NextRecord(40, NOW - 50_000), 1),
        # The first record that is left: nobody knows of those before.
        (NextRecord(40, NOW - 30_000), NextRecord(40, NOW - 30_000), 2),
        (NextRecord(40, NOW - 10), NextRecord(40, NOW - 10), None),
        (None, NextRecord(200, NOW - 50_000), 0),
    ],
)
def test_a_topics_rate(log_start: NextRecord | None, then: NextRecord | None, rate: float | None) -> None:
    assert topic_rate(log_start, then, 100, NOW - MINUTE, NOW) == rate


@pytest.mark.parametrize(
    ("lag", "group", "topic", "expected"),
    [
        (0, None, None, TimeToEnd(CatchUp.AT_END, 0)),
        (10, 3.0, 1.0, TimeToEnd(CatchUp.IN, 5_000)),
        (10, 1.0, 1.0, TimeToEnd(CatchUp.NEVER)),
        (10, 1.0, 2.0, TimeToEnd(CatchUp.NEVER)),
        (10, 0.0, None, TimeToEnd(CatchUp.NEVER)),
        (10, None, 1.0, TimeToEnd(CatchUp.UNKNOWN)),
        (10, 1.0, None, TimeToEnd(CatchUp.UNKNOWN)),
    ],
)
def test_time_to_the_end(lag: int, group: float | None, topic: float | None, expected: TimeToEnd) -> None:
    assert time_to_end(lag, group, topic) == expected


@pytest.mark.parametrize(
    ("properties", "timestamp", "behind", "per_second", "expected"),
    [
        ({}, NOW - 10, None, None, Retention(Precision.EARLIEST, NOW - 10 + 604_800_001)),
        ({"retention.ms": 5}, NOW - 10, None, None, Retention(Precision.EARLIEST, NOW)),
        ({"retention.ms": -1}, NOW - 10, None, None, Retention(Precision.NEVER)),
        ({}, -1, None, None, Retention(Precision.UNKNOWN)),
        ({"cleanup.policy": "compact"}, -1, None, None, Retention(Precision.NEVER)),
        ({"retention.ms": -1, "retention.bytes": 100}, NOW, None, None, Retention(Precision.UNKNOWN)),
        ({"retention.ms": -1, "retention.bytes": 100}, NOW, 100, None, Retention(Precision.EARLIEST, NOW)),
        ({"retention.ms": -1, "retention.bytes": 100}, NOW, 40, None, Retention(Precision.UNKNOWN)),
        ({"retention.ms": -1, "retention.bytes": 100}, NOW, 40, 0.0, Retention(Precision.NEVER)),
        ({"retention.ms": -1, "retention.bytes": 100}, NOW, 40, 2.0, Retention(Precision.EARLIEST, NOW + 30_000)),
        ({"retention.ms": 9_999, "retention.bytes": 100}, NOW, 40, 2.0, Retention(Precision.EARLIEST, NOW + 10_000)),
        ({"retention.bytes": 100}, -1, 100, 2.0, Retention(Precision.EARLIEST, NOW)),
    ],
)
def test_retention_from_outside(
    properties: dict[str, Any], timestamp: int, behind: int | None, per_second: float | None, expected: Retention
) -> None:
    config = LogConfig.from_properties(properties)
    record = NextRecord(7, timestamp)
    assert retention_at_the_earliest(config, record, NOW, bytes_behind=behind, bytes_per_second=per_second) == expected
    assert retention_at_the_earliest(config, None, NOW, bytes_behind=None, bytes_per_second=None).goes_ms is None


def test_where_a_groups_records_are() -> None:
    # Known values of Java's hash: of those the third is the smallest int.
    hashes = {"hello": 99162322, "Hello World": -862545276, "polygenelubricants": 0, "": 0}
    assert {name: partition_of(name, 50) for name in hashes} == {name: abs(hashed) % 50 for name, hashed in hashes.items()}
    assert partition_of("\N{GRINNING FACE}", 50) == (31 * 0xD83D + 0xDE00) % 50


def test_records_of_the_log_of_groups() -> None:
    def offset(group: str, at: int | None, version: int = 1) -> tuple[bytes, bytes | None]:
        key = encode_versioned(OffsetCommitKey(group=group, topic="t", partition=0), version)
        if at is None:
            return key, None
        return key, encode_versioned(OffsetCommitValue(offset=at, metadata="m", commit_timestamp=NOW + at), 3)

    records = [offset("a", 1), offset("ab", 2), offset("a", 3, 0), offset("b", 4), offset("b", None), (b"\0\3zzz", b"new")]
    history, late = CommitHistory(), CommitHistory(NOW + 2)
    for key, value in [*records, (None, b"x")]:
        history.read(key, value)
        late.read(key, value)
    at = TopicPartition("t", 0)
    assert history.of("a") == {at: [Commit(1, NOW + 1), Commit(3, NOW + 3)]}
    assert (history.of("b"), history.of("nobody")) == ({}, {})
    assert late.of("a") == {at: [Commit(3, NOW + 3)]}
    assert histories_of(["a", "z"], records) == {"a": history.of("a"), "z": {}}
    assert [group_of(key) for key, _ in records] == ["a", "ab", "a", "b", "b", None]
    assert group_of(None) is None
    with pytest.raises(ProtocolError):
        group_of(b"\0\1\0")


# --- Brokers, and a folder


def test_next_records_of_large_batches(broker: RunningBroker, client: Client) -> None:
    name = next(names)
    broker.create_topic(name, 4)
    for number in range(4):
        client.produce_many(name, [NewRecord(bytes(100_000), timestamp=NOW + number, partition=number) for _ in range(3)])
    keys = [TopicPartition(name, number) for number in range(4)]
    assert next_records(client.cluster, dict.fromkeys(keys, (1, 3)), "read_committed") == {
        key: NextRecord(1, NOW + key.partition) for key in keys
    }
    broker.on_loop(lambda: broker.node.manager.log(name, 1).delete_records(2))
    # What was deleted since the ends were asked for.
    assert next_records(client.cluster, {keys[1]: (0, 3)}, "read_uncommitted") == {keys[1]: NextRecord(2, NOW + 1)}
    with pytest.raises(UnknownTopicOrPartitionError):
        next_records(client.cluster, {TopicPartition(name, 9): (0, 3)}, "read_uncommitted")


@pytest.mark.parametrize("name", ["", "\x1b[31m\n", "\udcff", "x" * 40_000])
def test_names_that_no_group_has(broker: RunningBroker, topic: str, name: str) -> None:
    assert topic
    for source in (broker.data_dir, broker.bootstrap_servers):
        ran = run("groups", "describe", source, name)
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert any(
            why in ran.error
            for why in ("there is no group '", "surrogates not allowed", "a string of 40000 bytes", "a group's name")
        )


@pytest.mark.parametrize("release", RELEASES)
def test_next_records_of_every_format(golden: dict[str, str], release: str) -> None:
    """What two releases of Kafka wrote: mixed formats, a codec of each, compacted and transactional topics."""
    chance = random.Random(5)
    with tidelog.connect(golden[release]) as client:
        for topic, partitions in client.topics().items():
            if topic.startswith(("v0-", "v1-", "v2-")) and not topic.endswith(("lz4-lat", "gzip-ct")):
                continue
            for isolation in get_args(Isolation) if topic == "transactions" else ("read_committed",):
                read = [(one.offset, one.timestamp, one.partition) for one in client.read(topic, isolation=isolation)]
                keys = [TopicPartition(topic, number) for number in partitions]
                starts, ends = client.earliest_offsets(keys), client.latest_offsets(keys, isolation)
                for _ in range(4):
                    at = {key: (chance.randint(starts[key], ends[key]), ends[key]) for key in keys}
                    assert next_records(client.cluster, at, isolation) == {
                        key: next((one[:2] for one in read if one[2] == key.partition and one[0] >= start), None)
                        for key, (start, _) in at.items()
                    }


def test_rates_from_commits(broker: RunningBroker, client: Client, clock: ManualClock) -> None:
    name = next(names)
    broker.create_topic(name, 2)
    begin = clock.now_ms()
    for second in range(21):
        client.produce_many(name, [NewRecord(b"v", timestamp=begin + second * 1000, partition=number) for number in (0, 0, 1)])
    commit(client, name, name, 0, 10)
    clock.advance(10_000)
    commit(client, name, name, 30, 10)
    clock.advance(10_000)
    first, second_one = client.group_lag(name).partitions
    # 30 in 10 s, while two came each second; then the group stood still.
    assert (first.lag, first.group_per_second, first.topic_per_second) == (12, 3, 42 / 20)
    assert first.time_to_end == TimeToEnd(CatchUp.IN, round(12 / 0.9 * 1000))
    assert second_one.time_to_end == TimeToEnd(CatchUp.NEVER)
    # Silent for more than twice as long as between its commits: it stands still.
    clock.advance(11_000)
    assert client.group_lag(name).partitions[0].time_to_end == TimeToEnd(CatchUp.NEVER)
    (short, _) = client.group_lag(name, window_ms=5_000).partitions
    assert (short.group_per_second, short.time_to_end) == (0, TimeToEnd(CatchUp.NEVER))
    with pytest.raises(InvalidArgumentError):
        client.group_lag(name, window_ms=0)


def test_a_history_that_is_too_long(client: Client, topic: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(client, topic, topic, 1, 2)
    clock.advance(5_000)
    commit(client, topic, topic, 3)
    monkeypatch.setattr(group_lag, "MAX_HISTORY_OFFSETS", 1)
    first, second = client.group_lag(topic).partitions
    assert (first.group_per_second, second.group_per_second) == (None, None)


def test_members_and_partitions_without_offsets(broker: RunningBroker, client: Client, topic: str) -> None:
    reader, member_id = join(broker, topic, topic)
    found = client.group_lag(topic)
    (member,) = found.description.members
    assert (found.description.state, member.client_id) == ("Stable", "reader")
    assert member.assignment == (TopicPartition(topic, 0),)
    (lag,) = found.partitions
    check_fields(lag, committed_offset=None, lag=None, lag_ms=None, position=None, lost=0)
    assert lag.time_to_end == TimeToEnd(CatchUp.UNKNOWN)
    lines = run_ok("groups", "describe", broker.bootstrap_servers, topic, clock=broker.clock).lines
    assert lines[0] == f"{topic}: Stable, 1 member, consumer, range"
    assert lines[2].split() == [topic, "0", "-", "10", *["-"] * 4, "unknown", "unknown", member.member_id]
    for dry_run in (False, True):
        with pytest.raises(BrokerError, match="has 1 member: its offsets can be set only while it has none") as raised:
            client.reset_group(topic, "earliest", dry_run=dry_run)
        assert raised.value.error_code == ErrorCode.NON_EMPTY_GROUP
    # Who looked before the member came is refused by the coordinator.
    with pytest.raises(BrokerError, match="has members"):
        commit(client, topic, topic, 0)
    reader.ask(LeaveGroupRequest(group_id=topic, member_id=member_id), 1)
    reader.close()
    assert client.group_lag(topic).description.state == "Empty"


def test_a_topic_that_is_gone(broker: RunningBroker, client: Client, topic: str) -> None:
    group = next(names)
    commit(client, group, topic, 5)
    missing = TopicPartition(topic, 7)

    def commit_what_is_not_there() -> None:
        found = broker.node.groups.get(group)
        assert found is not None
        of_topic: Any = found.offsets.by_topic()[topic]
        of_topic[7] = of_topic[0]

    broker.on_loop(commit_what_is_not_there)
    found = client.group_lag(group)
    assert ([one.partition for one in found.partitions], found.without_log) == ([0], (missing,))
    ran = run_ok("groups", "describe", broker.bootstrap_servers, group, clock=broker.clock)
    assert ran.notes == [f"note: {topic}-7: the partition no longer exists, or has no leader"]


def test_a_folder_says_the_same_as_its_broker(tmp_path: Path) -> None:
    running = start(tmp_path / "data")
    try:
        clock = running.clock
        assert isinstance(clock, ManualClock)
        running.create_topic("orders", 2, retention_ms=3_600_000)
        running.create_topic("open", 1)
        with tidelog.connect(running.bootstrap_servers, clock=clock) as client:
            fill(client, "orders", NOW)
            add_transaction(running, "orders", 3, ControlType.ABORT, NOW)
            client.produce("orders", b"v", timestamp=NOW + 5_000, partition=0)
            add_transaction(running, "open", 2, ControlType.COMMIT, NOW)
            add_transaction(running, "open", 2, None, NOW)
            commit(client, "app", "orders", 2, 4)
            commit(client, "app", "open", 0)
            commit(client, "batch", "orders", 10, 12)
            clock.advance(20_000)
            commit(client, "app", "orders", 6, 4)
            running.on_loop(lambda: running.node.manager.log("orders", 1).delete_records(5))
            reader, _ = join(running, "app", "orders")
        commands = [
            ("list", "--json"),
            ("describe", "app", "--json"),
            ("describe", "app", "--json", "--isolation", "read_uncommitted", "--window", "15s"),
            ("describe", "batch", "--json", "--topic", "orders:0"),
        ]

        def told(source: object) -> tuple[list[Any], list[list[str]]]:
            ran = [run_ok("groups", name, source, *more, clock=clock) for name, *more in commands]
            return [[{**line, "coordinator": None} for line in one.json_lines] for one in ran], [one.notes for one in ran]

        of_broker, notes = told(running.bootstrap_servers)
        running.stop()
        reader.close()
        of_folder, folder_notes = told(running.data_dir)
    finally:
        running.stop()
    # A segment goes with its youngest record: a folder shows which that is.
    app = {(line["topic"], line["partition"]): line for line in of_folder[1] if line["type"] == "partition"}
    assert (app["orders", 0]["retention"], app["orders", 0]["retention_at"]) == ("exact", NOW + 5_000 + 3_600_000 + 1)
    assert (app["orders", 1]["lag"], app["orders", 1]["lag_ms"], app["orders", 1]["lost"]) == (5, 20_000 + 4 * MINUTE, 1)
    assert (app["open", 0]["end_offset"], app["open", 0]["high_watermark"]) == (3, 5)
    batch = [line for line in of_folder[3] if line["type"] == "partition"]
    assert [(line["next_offset"], line["lag_ms"]) for line in batch] == [(14, 15_000)]
    for one in (*of_broker[1:], *of_folder[1:]):
        for line in one:
            for name in [name for name in line if name.startswith("retention")]:
                del line[name]
    assert of_broker == of_folder
    assert [line for one in notes for line in one if "time" not in line] == [
        line for one in folder_notes for line in one if "does not know" not in line
    ]
    assert any("orders-1: 1 offsets from the committed offset 4 on were deleted unread" in line for line in notes[1])
    assert any("open-0: an open transaction stops readers at 3, before the log's end 5" in line for line in notes[1])


def test_offsets_in_transactions(tmp_path: Path) -> None:
    """One transaction is committed, one is open; what the group of an open one, and others, commit meanwhile counts."""
    running = start(tmp_path / "data", offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
    clock = running.clock
    assert isinstance(clock, ManualClock)

    def told(source: object, group: str) -> list[tuple[Any, ...]]:
        lines = run_ok("groups", "describe", source, group, "--json", "--window", "1m", clock=clock).json_lines
        names = ("partition", "committed_offset", "group_per_second")
        return [tuple(line[name] for name in names) for line in lines if line["type"] == "partition"]

    try:
        running.create_topic("orders", 2)
        with tidelog.connect(running.bootstrap_servers, clock=clock) as client:
            fill(client, "orders", NOW)
            commit(client, "app", "orders", 1, 1)
            with TransactionalProducer(running.address, "one") as one, TransactionalProducer(running.address, "two") as two:
                for producer, partition in ((one, 0), (two, 1)):
                    assert producer.init() == 0
                    assert producer.add_offsets("app") == 0
                    clock.advance(10_000)
                    send_offset(producer, "app", "orders", partition, 7)
                clock.advance(10_000)
                commit(client, "others", "orders", 3)
                clock.advance(10_000)
                commit(client, "others", "orders", 4)
                assert one.end() == 0
                groups: dict[str, list[tuple[Any, ...]]] = {"app": [(0, 7, 0.15), (1, 1, None)], "others": [(0, 4, 0.1)]}
                # What a client must leave out of rates: after the open one, transactions are not known to count.
                told_by_broker = {group: told(running.bootstrap_servers, group) for group in groups}
                assert [one[:2] for one in told_by_broker["app"]] == [one[:2] for one in groups["app"]]
                assert told_by_broker["others"] == groups["others"]
        running.stop()
        assert {group: told(running.data_dir, group) for group in groups} == groups
    finally:
        running.stop()


def send_offset(producer: TransactionalProducer, group: str, topic: str, partition: int, offset: int) -> None:
    place = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
    )
    ((answer,),) = (one.partitions for one in producer.client.ask(request, 3).topics)
    assert answer.error_code == 0


# --- Offsets set to a time


def test_reset_to_a_time(broker: RunningBroker, client: Client, topic: str, clock: ManualClock) -> None:
    now = clock.now_ms()
    add_transaction(broker, topic, 4, ControlType.ABORT, now + 1)
    commit(client, topic, topic, 15, 3)
    dry = client.reset_group(topic, now - 5 * MINUTE, dry_run=True)
    assert [one.committed_offset for one in client.group_lag(topic).partitions] == [15, 3]
    assert client.reset_group(topic, now - 5 * MINUTE) == dry
    assert [one.committed_offset for one in client.group_lag(topic).partitions] == [4, 4]
    first, second = dry
    assert (first.old_offset, first.old_record, first.new_offset, first.new_record) == (
        *(15, None, 4),
        NextRecord(4, now - 5 * MINUTE),
    )
    # Six records; what was aborted between is none.
    check_fields(first, again=6, skipped=0, is_exact=True, note="")
    assert (second.old_record, second.again, second.skipped) == (NextRecord(3, now - 6 * MINUTE), 0, 1)


def test_reset_where_nothing_is_that_late(broker: RunningBroker, client: Client, topic: str, clock: ManualClock) -> None:
    commit(client, topic, topic, 0, 10)
    address = broker.bootstrap_servers
    ran = run_ok("groups", "reset", address, topic, "--to", "2040-01-01", "--execute", "--json", clock=clock)
    assert [(one["new_offset"], one["new_timestamp"], one["skipped"], one["note"]) for one in ran.json_lines] == [
        (10, None, 10, "no record is at or after that time: using the end of the log"),
        (10, None, 0, "no record is at or after that time: using the end of the log"),
    ]
    assert f"{topic}: offsets set: 2" in ran.stderr
    assert [one.lag_ms for one in client.group_lag(topic).partitions] == [0, 0]


def test_an_open_transaction_is_not_passed_over(broker: RunningBroker, client: Client, topic: str) -> None:
    add_transaction(broker, topic, 4, None, broker.clock.now_ms())
    commit(client, topic, topic, 0, 0)
    isolations: tuple[Isolation, ...] = get_args(Isolation)
    ends = {
        isolation: [one.new_offset for one in client.reset_group(topic, "latest", isolation=isolation)]
        for isolation in isolations
    }
    assert ends == {"read_uncommitted": [14, 10], "read_committed": [10, 10]}


def test_reset_to_ends_and_offsets(broker: RunningBroker, client: Client, topic: str, clock: ManualClock) -> None:
    address = broker.bootstrap_servers

    def reset(*args: object) -> list[str]:
        lines = run_ok("groups", "reset", address, topic, *args, "--json", clock=clock).json_lines
        assert all(line["dry_run"] is ("--execute" not in args) for line in lines)
        return [
            "partition {partition}: {old_offset} to {new_offset}, {read_again} again, {skipped} skipped".format_map(line)
            for line in lines
        ]

    broker.on_loop(lambda: broker.node.manager.log(topic, 1).delete_records(3))
    assert reset("--to", "earliest", "--topic", topic, "--execute") == [
        "partition 0: None to 0, 0 again, 0 skipped",
        "partition 1: None to 3, 0 again, 0 skipped",
    ]
    assert reset("--to", "latest", "--execute") == [
        "partition 0: 0 to 10, 0 again, 10 skipped",
        "partition 1: 3 to 10, 0 again, 7 skipped",
    ]
    assert reset("--to-offset", 2, "--execute") == [
        "partition 0: 10 to 2, 8 again, 0 skipped",
        "partition 1: 10 to 3, 7 again, 0 skipped",
    ]
    for dry_run in ((), ("--dry-run",)):
        found = reset("--to-offset", 99, "--topic", f"{topic}:1", *dry_run)
        assert found == ["partition 1: 3 to 10, 0 again, 7 skipped"]
    assert reset("--by", "150s", "--topic", f"{topic}:0,1", "--execute") == [
        "partition 0: 2 to 7, 0 again, 5 skipped",
        "partition 1: 3 to 7, 0 again, 4 skipped",
    ]
    assert [one.note for one in client.reset_group(topic, ToOffset(0), dry_run=True)] == ["", "offset 0 is below the log"]
    ran = run_ok("groups", "reset", address, topic, "--to", "-150s", "--dry-run", clock=clock)
    assert ran.lines[0].split("  ")[0] == "topic"
    assert "dry run: nothing was changed" in ran.stderr
    assert f"-150s = {clock.now_ms() - 150_000} ms" in ran.stderr


def test_counting_ends_somewhere(client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(client, topic, topic, 10, 10)
    monkeypatch.setattr(group_reset, "MAX_COUNTED_BYTES", 100)
    found = client.reset_group(topic, "earliest", dry_run=True)
    assert [(one.again, one.is_exact) for one in found] == [(10, False), (10, False)]


@pytest.mark.parametrize(
    ("args", "exit_code", "said"),
    [
        (["reset", "{address}", "nobody", "--to", "earliest"], 1, "has no committed offsets: name the topics to reset"),
        (["reset", "{address}", "nobody", "--to", "earliest", "--topic", "nowhere"], 1, "no topic 'nowhere'"),
        (["reset", "{address}", "nobody", "--to", "earliest", "--topic", "nowhere:3"], 1, "no topic 'nowhere'"),
        (["reset", "{folder}", "g", "--to", "now"], 2, "reset needs brokers, HOST:PORT, not a folder"),
        (["reset", "{address}", "g", "--to", "now", "--execute", "--dry-run"], 2, "cannot be combined"),
        (["reset", "{address}", "g"], 2, "give exactly one of --to, --to-offset and --by"),
        (["reset", "{address}", "g", "--to", "now", "--by", "1h"], 2, "give exactly one of --to, --to-offset and --by"),
        (["reset", "{address}", "g", "--by", "soon"], 2, "--by: the text is not a duration"),
        (["reset", "{address}", "g", "--by", "9999w"], 1, "before 1970"),
        (["reset", "{address}", "g", "--to", "now", "--topic", "t:x"], 2, "is neither a topic nor a topic with partitions"),
        (["reset", "{address}", "g", "--to", "now", "--topic", "t:9999999999"], 2, "is not a partition number"),
        (["describe", "{address}", "g", "--window", "0"], 2, "--window must be positive"),
        (["describe", "127.0.0.1:1", "g"], 1, "Connection refused"),
        (["list", "{folder}/nowhere"], 1, "no such folder"),
    ],
)
def test_refused(broker: RunningBroker, args: list[str], exit_code: int, said: str) -> None:
    broker.create_topic(next(names))
    filled = [arg.format(address=broker.bootstrap_servers, folder=broker.data_dir) for arg in args]
    ran = run("groups", *filled, clock=broker.clock)
    assert ran.exit_code == exit_code
    assert said in ran.error


def test_refused_in_python(client: Client) -> None:
    with pytest.raises(NotFoundError):
        client.reset_group("nobody", "earliest")
    with pytest.raises(UnknownTopicOrPartitionError):
        client.reset_group("nobody", "earliest", partitions=[])
    with pytest.raises(InvalidArgumentError):
        client.reset_group("nobody", "soon")


def test_the_topics_of_a_group_are_gone(broker: RunningBroker, client: Client, topic: str) -> None:
    group = next(names)
    commit(client, group, topic, 5)
    broker.on_loop(lambda: broker.node.manager.delete_topic(topic))
    if client.group_lag(group).without_log:
        with pytest.raises(NotFoundError, match="exists any longer"):
            client.reset_group(group, "earliest")


def test_lags_of_all_groups(broker: RunningBroker, client: Client, topic: str, clock: ManualClock) -> None:
    """Positions of sinks, mirrors and replays are no lag, whatever the groups are called."""
    names_of = [f"{topic}-{kind}" for kind in ("slow", "done", "sink", "mirror")]
    slow, done, sink, mirror = names_of
    commit(client, slow, topic, 2, 10)
    commit(client, done, topic, 10, 10)
    key = TopicPartition(topic, 0)
    commit_offsets(client.cluster, sink, {key: 1}, metadata=Epoch("a query", 0).to_json())
    commit_offsets(client.cluster, mirror, {key: 1}, metadata=source_position("elsewhere", 0))
    for place in (broker.bootstrap_servers, str(broker.data_dir)):
        chosen = [part for name in names_of for part in ("--group", name)]
        lines = run_ok("groups", "lag", place, *chosen, "--json", clock=clock).json_lines
        assert [(one["group"], one["lag"], one["lag_ms"], one["keeps_positions"]) for one in lines][:2] == [
            (slow, 8, 7 * MINUTE, False),
            (done, 0, 0, False),
        ]
        assert sorted((one["group"], one["lag"], one["keeps_positions"]) for one in lines[2:]) == [
            (mirror, None, True),
            (sink, None, True),
        ]
        assert lines[0]["most_behind"] == f"{topic}-0"
        everything = run_ok("groups", "lag", place, clock=clock)
        assert slow in everything.stdout
        assert sink not in everything.stdout
        assert f"{mirror}" in everything.stderr or "..." in everything.stderr
        for asked, exit_code in ((names_of, 1), ([slow], 1), ([done, sink, mirror], 0)):
            ran = run(
                "groups", "lag", place, "--max-lag", "5m", *(part for one in asked for part in ("--group", one)), clock=clock
            )
            assert ran.exit_code == exit_code, ran.stdout
        assert run("groups", "lag", place, "--group", slow, "--max-lag", "8m", clock=clock).exit_code == 0
        assert "there is no group 'nobody'" in run("groups", "lag", place, "--group", "nobody", clock=clock).error
