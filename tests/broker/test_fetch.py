"""Fetch over real sockets: bounds, waiting, transactions, what happens to topics meanwhile. All else: interop/differential."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker import topics_now
from tests.broker.cold import ColdDisk, forget
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import message_set, produce_request, some_records
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.control import ControlType, control_key, end_txn_value
from tidelog.records.records import Record
from tidelog.records.validation import AppendOrigin
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

LONG_MS = 15_000
NEVER_MS = 600_000
"""Longer than a client of these tests waits for an answer."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that no test stops; each has topics of its own."""
    broker = RunningBroker(tmp_path_factory.mktemp("fetch"), tidelog_time_map_enable="false")  # Making one warms what is cold.
    yield broker
    broker.stop()


@pytest.fixture
def asking(shared: RunningBroker) -> Iterator[RawClient]:
    with shared.client() as client:
        yield client


def of(topic: str, *offsets: int, max_bytes: int = 1 << 20, **more: Any) -> FetchRequest:
    """A fetch of the partitions 0, 1... at these offsets."""
    partitions = [
        FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes) for index, offset in enumerate(offsets)
    ]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20} | more
    return FetchRequest(topics=[FetchTopic(topic, partitions=partitions)], **fields)


def partitions_of(response: FetchResponse) -> list[PartitionData]:
    return [partition for topic in response.responses for partition in topic.partitions]


def fill(broker: RunningBroker, topic: str, *batches: bytes, partition: int = 0) -> None:
    """Append batches on the broker's thread, as Produce does."""

    def append() -> None:
        log = broker.node.manager.log(topic, partition)
        for batch in batches:
            log.append_as_leader(bytearray(batch), 0)
        log.update_high_watermark(log.log_end_offset_metadata)
        broker.node.delayed_fetches.appended(TopicPartition(topic, partition))

    broker.on_loop(append)


def is_waiting(broker: RunningBroker, topic: str) -> bool:
    return broker.on_loop(lambda: TopicPartition(topic, 0) in broker.node.delayed_fetches._watches)


def wait_until_waiting(broker: RunningBroker, topic: str, *, expected: bool = True) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while is_waiting(broker, topic) != expected:
        assert time.monotonic() < deadline


class TestBounds:
    def test_partitions_get_their_turn(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("turns", 3)
        batch = message_set(2)
        for partition in range(3):
            fill(shared, "turns", batch, batch, partition=partition)
        size = len(batch)
        sizes = [len(one.records) for one in partitions_of(asking.ask(of("turns", 0, 0, 0, max_bytes=3 * size), 12))]
        assert sizes == [2 * size] * 3
        sizes = [len(one.records) for one in partitions_of(asking.ask(of("turns", 0, 0, 0, max_bytes=size + 1), 12))]
        assert sizes == [size + 1] * 3
        request = of("turns", 0, 0, 0)
        request.max_bytes = 3 * size + 5
        sizes = [len(one.records) for one in partitions_of(asking.ask(request, 12))]
        assert sizes == [2 * size, size + 5, 0]

    def test_a_first_batch_comes_whole(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("whole", 2)
        batch = message_set(2)
        for partition in range(2):
            fill(shared, "whole", batch, batch, partition=partition)
        request = of("whole", 0, 0, max_bytes=10)
        assert [len(one.records) for one in partitions_of(asking.ask(request, 12))] == [len(batch), 0]
        assert [len(one.records) for one in partitions_of(asking.ask(request, 3))] == [
            len(message_set(1)),
            0,
        ]

    @pytest.mark.parametrize("others", [0, 3000])
    def test_a_partition_that_is_named_twice(self, shared: RunningBroker, asking: RawClient, others: int) -> None:
        """As in Kafka: the last entry counts. Wide requests are looked through in another way."""
        topic = f"named-twice-{others}"
        shared.create_topic(topic)
        fill(shared, topic, message_set(2))
        request = of(topic, *[99] * (others + 1))
        request.topics[0].partitions.append(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20))
        answered = partitions_of(asking.ask(request, 12))
        assert [one.partition_index for one in answered] == list(range(others + 1))
        assert [one.error_code for one in answered[1:]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * others
        assert len(answered[0].records) == len(message_set(2))

    def test_many_bytes(self, shared: RunningBroker, asking: RawClient) -> None:
        """More than is copied: they are mapped, and the same, also when the log has grown meanwhile."""
        shared.create_topic("many")
        batches = [message_set(2, records=some_records(100, value=os.urandom(3000))) for _ in range(8)]
        fill(shared, "many", *batches[:4])
        for count in (4, 8):
            (answer,) = partitions_of(asking.ask(of("many", 0, max_bytes=1 << 24), 12))
            stored = shared.on_loop(lambda: shared.node.manager.log("many", 0).read(0, 1 << 24).data)
            assert len(list(iter_headers(bytes(answer.records)))) == count
            assert answer.records == stored
            fill(shared, "many", *batches[4:])

    def test_fetch_max_bytes(self, start_broker: StartBroker) -> None:
        broker = start_broker(fetch_max_bytes=2000)
        broker.create_topic("bounded", 2)
        batch = message_set(2, records=some_records(20, value=b"v" * 50))
        for partition in range(2):
            fill(broker, "bounded", batch, batch, partition=partition)
        with broker.client() as client:
            sizes = [len(one.records) for one in partitions_of(client.ask(of("bounded", 0, 0), 12))]
        assert sizes == [2000, 0]


class TestWaiting:
    def test_woken_by_produce(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("woken", 2)
        asking.send(of("woken", 0, 0, max_wait_ms=LONG_MS), 12)
        wait_until_waiting(shared, "woken")
        with shared.client() as producer:
            answer = producer.ask(produce_request([("woken", 1, message_set(2))]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        empty, filled = partitions_of(asking.receive())
        assert (len(empty.records), len(filled.records), filled.high_watermark) == (0, len(message_set(2)), 3)
        assert not is_waiting(shared, "woken")

    def test_min_bytes_come_together(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("together", 2)
        batch = message_set(2)
        fill(shared, "together", batch)
        asking.send(of("together", 0, 0, max_wait_ms=LONG_MS, min_bytes=3 * len(batch)), 12)
        wait_until_waiting(shared, "together")
        fill(shared, "together", batch, partition=1)
        assert is_waiting(shared, "together")
        fill(shared, "together", batch)
        assert [len(one.records) for one in partitions_of(asking.receive())] == [2 * len(batch), len(batch)]

    def test_min_bytes_count_what_may_be_sent(self, shared: RunningBroker, asking: RawClient) -> None:
        """Of a partition no more counts than the fetcher takes of it."""
        shared.create_topic("taken", 2)
        batch = message_set(2)
        asking.send(of("taken", 0, 0, max_wait_ms=LONG_MS, min_bytes=len(batch) + 1, max_bytes=len(batch)), 12)
        wait_until_waiting(shared, "taken")
        fill(shared, "taken", batch, batch, batch)
        assert is_waiting(shared, "taken")
        fill(shared, "taken", batch, partition=1)
        assert [len(one.records) for one in partitions_of(asking.receive())] == [len(batch)] * 2

    def test_time_is_over(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("over")
        fill(shared, "over", message_set(2))
        began = time.monotonic()
        (answer,) = partitions_of(asking.ask(of("over", 0, max_wait_ms=60, min_bytes=1 << 20), 12))
        assert time.monotonic() - began >= 0.05
        assert len(answer.records) == len(message_set(2))

    def test_a_roll_ends_it(self, shared: RunningBroker, asking: RawClient) -> None:
        """Who has come to lie in an older segment waits for no more bytes of it."""
        shared.create_topic("rolled")
        fill(shared, "rolled", message_set(2))
        asking.send(of("rolled", 0, max_wait_ms=LONG_MS, min_bytes=1 << 20), 12)
        wait_until_waiting(shared, "rolled")
        shared.on_loop(lambda: shared.node.manager.log("rolled", 0).roll())
        fill(shared, "rolled", message_set(2))
        (answer,) = partitions_of(asking.receive())
        assert len(answer.records) == len(message_set(2))

    def test_an_offset_in_an_older_segment_does_not_wait(self, shared: RunningBroker, asking: RawClient) -> None:
        """As in Kafka: otherwise who reads small segments waits `max_wait_ms` in each of them."""
        shared.create_topic("older")
        for _ in range(2):
            fill(shared, "older", message_set(2))
            shared.on_loop(lambda: shared.node.manager.log("older", 0).roll())
        (answer,) = partitions_of(asking.ask(of("older", 0, max_wait_ms=NEVER_MS, min_bytes=1 << 20), 12))
        assert len(answer.records) == len(message_set(2))

    def test_the_topic_goes(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("going")
        asking.send(of("going", 0, max_wait_ms=LONG_MS), 12)
        wait_until_waiting(shared, "going")
        view = shared.on_loop(lambda: shared.node.topics.get("going"))
        assert view is not None
        shared.on_loop(lambda: topics_now.delete(shared.node, view.name))
        (answer,) = partitions_of(asking.receive())
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_client_goes(self, shared: RunningBroker) -> None:
        shared.create_topic("left")
        with shared.client() as client:
            client.send(of("left", 0, max_wait_ms=LONG_MS), 12)
            wait_until_waiting(shared, "left")
        wait_until_waiting(shared, "left", expected=False)

    def test_many_wait(self, shared: RunningBroker) -> None:
        shared.create_topic("crowd")
        clients = [shared.client() for _ in range(50)]
        for client in clients:
            client.send(of("crowd", 0, max_wait_ms=LONG_MS), 12)
        deadline = time.monotonic() + PATIENCE_S
        key = TopicPartition("crowd", 0)
        while shared.on_loop(lambda: len(shared.node.delayed_fetches._watches.get(key, ()))) < len(clients):
            assert time.monotonic() < deadline
        fill(shared, "crowd", message_set(2))
        for client in clients:
            (answer,) = partitions_of(client.receive())
            assert len(answer.records) == len(message_set(2))
            client.close()


class TestTransactions:
    @pytest.fixture
    def undecided(self, shared: RunningBroker) -> str:
        """Producer 1 was aborted and has one more open, producer 2 committed in between."""
        name = f"transactions-{time.monotonic_ns()}"
        shared.create_topic(name)

        def data(producer: int, sequence: int) -> bytes:
            batch = build_batch_v2(some_records(2), producer=Producer(producer, 0, sequence), is_transactional=True)
            return bytes(batch)

        def marker(producer: int, kind: ControlType) -> bytes:
            record = Record(0, 1000, CREATE_TIME, control_key(kind), end_txn_value(0))
            return bytes(build_batch_v2([record], producer=Producer(producer, 0, -1), is_transactional=True, is_control=True))

        def append() -> None:
            log = shared.node.manager.log(name, 0)
            for batch, origin in (
                (data(1, 0), AppendOrigin.CLIENT),
                (data(2, 0), AppendOrigin.CLIENT),
                (marker(1, ControlType.ABORT), AppendOrigin.COORDINATOR),
                (marker(2, ControlType.COMMIT), AppendOrigin.COORDINATOR),
                (data(1, 2), AppendOrigin.CLIENT),
            ):
                log.append_as_leader(bytearray(batch), 0, origin=origin)
                log.update_high_watermark(log.log_end_offset_metadata)

        shared.on_loop(append)
        return name

    def test_read_committed(self, undecided: str, asking: RawClient) -> None:
        (answer,) = partitions_of(asking.ask(of(undecided, 0, isolation_level=1), 12))
        assert (answer.last_stable_offset, answer.high_watermark) == (6, 8)
        assert max(header.last_offset for header in iter_headers(bytes(answer.records))) == 5
        assert answer.aborted_transactions is not None
        assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(1, 0)]
        (answer,) = partitions_of(asking.ask(of(undecided, 5, isolation_level=1), 12))
        assert answer.aborted_transactions == []

    def test_read_uncommitted(self, undecided: str, asking: RawClient) -> None:
        (answer,) = partitions_of(asking.ask(of(undecided, 0), 12))
        assert max(header.last_offset for header in iter_headers(bytes(answer.records))) == 7
        assert answer.aborted_transactions is None

    def test_old_fetchers_see_no_markers(self, undecided: str, asking: RawClient) -> None:
        (answer,) = partitions_of(asking.ask(of(undecided, 0), 2))
        assert [header.base_offset for header in iter_headers(bytes(answer.records))] == [0, 1, 2, 3, 6, 7]

    def test_waiting_for_a_decision(self, undecided: str, shared: RunningBroker, asking: RawClient) -> None:
        asking.send(of(undecided, 6, isolation_level=1, max_wait_ms=LONG_MS), 12)
        wait_until_waiting(shared, undecided)
        fill(shared, undecided, message_set(2))
        assert is_waiting(shared, undecided)
        record = Record(0, 1000, CREATE_TIME, control_key(ControlType.COMMIT), end_txn_value(0))
        commit = build_batch_v2([record], producer=Producer(1, 0, -1), is_transactional=True, is_control=True)

        def decide() -> None:
            log = shared.node.manager.log(undecided, 0)
            log.append_as_leader(bytearray(commit), 0, origin=AppendOrigin.COORDINATOR)
            log.update_high_watermark(log.log_end_offset_metadata)
            shared.node.delayed_fetches.appended(TopicPartition(undecided, 0))

        shared.on_loop(decide)
        (answer,) = partitions_of(asking.receive())
        assert answer.last_stable_offset == answer.high_watermark == 12


def test_a_topic_made_anew_within_a_session(shared: RunningBroker, asking: RawClient) -> None:
    def create() -> Any:
        shared.create_topic("again")
        view = shared.on_loop(lambda: shared.node.topics.get("again"))
        assert view is not None
        return view

    view = create()
    request = of("again", 0, session_epoch=0)
    request.topics[0].topic_id = view.topic_id
    began = asking.ask(request, 13)
    assert began.session_id
    shared.on_loop(lambda: topics_now.delete(shared.node, view.name))
    again = FetchRequest(max_wait_ms=0, session_id=began.session_id, session_epoch=1)
    assert [one.error_code for one in partitions_of(asking.ask(again, 13))] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    create()
    again.session_epoch = 2
    assert [one.error_code for one in partitions_of(asking.ask(again, 13))] == [ErrorCode.INCONSISTENT_TOPIC_ID]


class TestColdRecords:
    """What is not in the page cache is read on another thread."""

    @pytest.fixture
    def cold(self, shared: RunningBroker) -> str:
        name = f"cold-{time.monotonic_ns()}"
        shared.create_topic(name)
        batches = [message_set(2, records=some_records(10, value=os.urandom(20_000))) for _ in range(10)]
        fill(shared, name, *batches[:5])
        shared.on_loop(lambda: shared.node.manager.log(name, 0).roll())
        fill(shared, name, *batches[5:])
        forget(shared.on_loop(lambda: shared.node.manager.log(name, 0).directory))
        return name

    @pytest.mark.parametrize(
        ("offset", "max_bytes", "version"), [(0, 1 << 24, 12), (3, 50_000, 12), (55, 1 << 20, 12), (0, 1 << 20, 2)]
    )
    def test_fetch(
        self,
        cold: str,
        offset: int,
        max_bytes: int,
        version: int,
        shared: RunningBroker,
        asking: RawClient,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        disk = ColdDisk(shared, monkeypatch)
        (answer,) = partitions_of(asking.ask(of(cold, offset, max_bytes=max_bytes), version))
        assert disk.spared
        first = next(iter_headers(bytes(answer.records)))
        assert first.base_offset <= offset <= first.last_offset
        assert len(answer.records) >= min(max_bytes, 200_000)
        if version == 12:
            (again,) = partitions_of(asking.ask(of(cold, offset, max_bytes=max_bytes), version))
            assert again == answer

    def test_the_client_goes_meanwhile(self, cold: str, shared: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        held: list[Any] = []
        asked = threading.Event()
        run = shared.node.blocking.run
        ColdDisk(shared, monkeypatch)

        def hold(work: Any, done: Any) -> None:
            held.append((work, done))
            asked.set()

        monkeypatch.setattr(shared.node.blocking, "run", hold)
        with shared.client() as client:
            client.send(of(cold, 0), 12)
            assert asked.wait(PATIENCE_S)
        monkeypatch.undo()
        shared.on_loop(lambda: run(*held[0]))
        with shared.client() as client:
            (answer,) = partitions_of(client.ask(of(cold, 0), 12))
            assert answer.error_code == 0


def test_the_disk_fails(shared: RunningBroker, asking: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that cannot be read is that partition's error, and only its."""
    shared.create_topic("failing", 2)
    for partition in range(2):
        fill(shared, "failing", message_set(2), partition=partition)
    shared.on_loop(lambda: os.close(shared.node.manager.log("failing", 0).segments.active.log._fd))
    shared.on_loop(lambda: setattr(shared.node.manager.log("failing", 0).segments.active.log, "_fd", 1 << 20))
    try:
        answers = {version: partitions_of(asking.ask(of("failing", 0, 0), version)) for version in (5, 6, 12)}
    finally:
        shared.on_loop(lambda: setattr(shared.node.manager.log("failing", 0).segments.active.log, "_fd", -1))
    assert [answers[version][0].error_code for version in answers] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    assert all(len(answers[version][1].records) for version in answers)
