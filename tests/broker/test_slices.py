"""Long work in slices: order, fairness, errors, and what the loop does in between."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.requests import slices as slices_module
from tidelog.broker.requests.request import Outcome
from tidelog.broker.requests.slices import COLLECTED_S, SLICE_S, Elsewhere, Slices, slowly
from tidelog.broker.requests.wide_requests import AT_ONCE, SLOTS, WideRequests, discard
from tidelog.formats.non_blocking_read import NotCachedError, is_non_blocking
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Rounds:
    """Timers and threads of a loop that goes round when it is asked to."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.calls.append(callback)

    def run(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        def later() -> None:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

        self.calls.append(later)

    def go_round(self) -> None:
        for _ in range(len(self.calls)):
            self.calls.popleft()()


class Asked:
    """A request that notes its answer."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    def respond(self, response: object, *, is_wide: bool = False) -> None:
        self.answers.append(response)


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


class Clock:
    """Time passes only in work."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(slices_module, "perf_counter", made)
    return made


@pytest.fixture
def slices(rounds: Rounds, clock: Clock) -> Slices:
    return Slices(rounds, rounds, rounds)  # type: ignore[arg-type]


def working(clock: Clock, steps: int, each_s: float, noted: list[int] | None = None) -> Iterator[Any]:
    for step in range(steps):
        clock.now_s += each_s
        if noted is not None:
            noted.append(step)
        yield None
    return Outcome.NOTHING


def test_short_work_is_answered_at_once(slices: Slices, rounds: Rounds, clock: Clock) -> None:
    asked = Asked()
    assert slices.answer(asked, working(clock, 20, SLICE_S / 40)) is Outcome.NOTHING  # type: ignore[arg-type]
    assert slices.waiting == 0
    rounds.go_round()
    assert not asked.answers


def test_long_work_takes_a_slice_a_round(slices: Slices, rounds: Rounds, clock: Clock) -> None:
    noted: list[int] = []
    asked = Asked()
    assert slices.answer(asked, working(clock, 10, SLICE_S * 0.6, noted)) is Outcome.LATER  # type: ignore[arg-type]
    seen = [len(noted)]
    while not asked.answers:
        rounds.go_round()
        seen.append(len(noted))
    assert max(after - before for before, after in pairwise(seen)) == 2
    assert asked.answers == [Outcome.NOTHING]
    assert noted == list(range(10))


@pytest.mark.parametrize(("is_shared", "turns"), [(False, 1), (True, 10)])
def test_slices_are_short_while_other_connections_are_active(
    slices: Slices, rounds: Rounds, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_shared: bool, turns: int
) -> None:
    """A slice of no length at all is a single step; a long one is all of the work."""
    monkeypatch.setattr(slices_module, "SLICE_S", PATIENCE_S)
    monkeypatch.setattr(slices_module, "SHORT_SLICE_S", 0.0)
    slices.is_shared = lambda: is_shared
    slices.note(PATIENCE_S)  # The round is full: all but the first step is left for later rounds.
    asked = Asked()
    assert slices.answer(asked, working(clock, 10, 0)) is Outcome.LATER  # type: ignore[arg-type]
    count = 0
    while not asked.answers:
        count += slices.waiting > 0
        rounds.go_round()
    assert count == turns


def test_many_works_share_a_round(slices: Slices, rounds: Rounds, clock: Clock) -> None:
    """Forty clients at once do not make a round forty slices long."""
    asked = [Asked() for _ in range(40)]
    for one in asked:
        slices.answer(one, working(clock, 80, SLICE_S / 40))  # type: ignore[arg-type]
    assert clock.now_s < 10 * SLICE_S
    longest_s = 0.0
    while not all(one.answers for one in asked):
        began = clock.now_s
        rounds.go_round()
        longest_s = max(longest_s, clock.now_s - began)
    assert SLICE_S <= longest_s < 1.1 * SLICE_S


def test_in_a_round_that_is_full_works_are_only_begun(slices: Slices, rounds: Rounds, clock: Clock) -> None:
    """However many come in it: each has its first step, and its turn in a round of its own."""
    assert not slices.is_round_full
    slices.note(SLICE_S)
    assert slices.is_round_full
    noted: list[int] = []
    asked = [Asked() for _ in range(40)]
    for one in asked:
        assert slices.answer(one, working(clock, 3, 0, noted)) is Outcome.LATER  # type: ignore[arg-type]
    assert noted == [0] * 40 and slices.waiting == 40
    for done in range(1, 41):
        rounds.go_round()
        assert (slices.is_round_full, sum(bool(one.answers) for one in asked)) == (False, done)


def test_young_objects_are_looked_at_by_the_time_of_work(slices: Slices, rounds: Rounds) -> None:
    looked: list[int] = []
    slices.collect = lambda: looked.append(1)
    for _ in range(20):
        slices.note(COLLECTED_S / 4)
        rounds.go_round()
    assert len(looked) == 5


def test_what_is_done_elsewhere_comes_back(slices: Slices, rounds: Rounds) -> None:
    def work() -> Iterator[Any]:
        assert is_non_blocking()
        got = yield Elsewhere(lambda: 42)
        try:
            yield Elsewhere(lambda: 1 // 0)
        except ZeroDivisionError:
            return (got, is_non_blocking())

    asked = Asked()
    assert slices.answer(asked, work()) is Outcome.LATER  # type: ignore[arg-type]
    while not asked.answers:
        rounds.go_round()
    assert asked.answers == [(42, True)]
    assert not is_non_blocking()


def test_missing_bytes_are_waited_for(slices: Slices, rounds: Rounds, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    fd = os.open(path, os.O_RDONLY)
    tries = 0

    def work() -> Iterator[Any]:
        nonlocal tries
        while is_non_blocking():  # Memory is short: it ends with patience.
            tries += 1
            yield NotCachedError(fd, 0, 3)
        return Outcome.NOTHING

    asked = Asked()
    try:
        assert slices.answer(asked, work()) is Outcome.LATER  # type: ignore[arg-type]
        while not asked.answers:
            rounds.go_round()
    finally:
        os.close(fd)
    assert tries == 64


def test_an_error_closes_the_connection(slices: Slices, rounds: Rounds, caplog: pytest.LogCaptureFixture) -> None:
    def work() -> Iterator[Any]:
        yield Elsewhere(lambda: None)
        raise ValueError("no")

    asked = Asked()
    slices.answer(asked, work())  # type: ignore[arg-type]
    while not asked.answers:
        rounds.go_round()
    assert asked.answers == [Outcome.CLOSE]
    assert "ValueError: no" in caplog.text


def test_slowly(slices: Slices) -> None:
    made = slowly(range(10), 3)
    yields = 0
    while True:
        try:
            next(made)
            yields += 1
        except StopIteration as end:
            assert (end.value, yields) == (list(range(10)), 3)
            return


def test_wide_requests_take_turns() -> None:
    wide = WideRequests()
    begun: list[int] = []
    for number in range(SLOTS + 2):
        wide.enter(lambda number=number: begun.append(number))  # type: ignore[misc]
    assert begun == list(range(SLOTS)) and wide.waiting == 2
    for _ in range(SLOTS + 2):
        wide.leave()
    assert begun == list(range(SLOTS + 2))


def test_discard_empties_arrays() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name=str(i)) for i in range(1001)])
    discard(message)
    assert message.topics == []


COUNT = 60_000


@pytest.mark.parametrize("kind", ["Fetch", "ListOffsets", "Metadata"])
def test_a_wide_request_stalls_nobody(broker: RunningBroker, kind: str) -> None:
    """Its answer is right, and no turn of the loop took long, in processor time."""
    broker.create_topic("t")
    with broker.client() as client, LoopTurns(broker) as turns:
        if kind == "Fetch":
            wanted = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1000) for i in range(COUNT)]
            fetch = FetchRequest(
                replica_id=-1, max_bytes=1000, session_epoch=-1, topics=[FetchTopic(topic="t", partitions=wanted)]
            )
            fetched = client.ask(fetch, 12)
            assert isinstance(fetched, FetchResponse)
            codes = {one.partition_index: one.error_code for one in fetched.responses[0].partitions}
            assert len(codes) == COUNT and codes.pop(0) == 0 and set(codes.values()) == {3}
        elif kind == "ListOffsets":
            asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(COUNT)] * 2
            listed = client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]), 7)
            assert isinstance(listed, ListOffsetsResponse)
            assert [one.error_code for one in listed.topics[0].partitions] == [42] * 2 * COUNT  # Named twice.
        else:
            names = [MetadataRequestTopic(name=f"no-{i}") for i in range(COUNT)]
            told = client.ask(
                MetadataRequest(topics=[*names, MetadataRequestTopic(name="t")], allow_auto_topic_creation=False), 8
            )
            assert isinstance(told, MetadataResponse)
            assert [one.error_code for one in told.topics] == [3] * COUNT + [0]
        assert turns.longest.seconds < 0.06, turns.longest


class TestProduce:
    BOMB = bytes(build_batch_v2([Record(i, 1000 + i, CREATE_TIME, b"k", bytes(1 << 20)) for i in range(8)], codec=Codec.ZSTD))

    def produced(self, count: int, records: bytes) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=records) for index in range(count)]
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)])

    def test_partitions_are_appended_one_by_one(self, broker: RunningBroker, client: RawClient) -> None:
        """Others append meanwhile; their records and these do not mix, and every record is where it was told to be."""
        broker.create_topic("t", partitions=12)
        small = bytes(build_batch_v2([Record(0, 5, CREATE_TIME, b"k", b"small")]))
        with broker.client() as bomber:
            bomber.send(self.produced(12, self.BOMB), 9)
            told = [client.ask(self.produced(12, small), 9).responses[0].partition_responses for _ in range(20)]
            bombed = bomber.receive().responses[0].partition_responses
        assert not any(one.error_code for answer in [*told, bombed] for one in answer)
        for index in range(12):
            offsets = sorted(answer[index].base_offset for answer in told)
            first = bombed[index].base_offset
            assert [offset for offset in range(28) if not first <= offset < first + 8] == offsets
            assert broker.on_loop(lambda index=index: broker.node.manager.log("t", index).log_end_offset) == 28

    def test_a_topic_that_goes_meanwhile(self, broker: RunningBroker, client: RawClient) -> None:
        broker.create_topic("t", partitions=12)
        manager = broker.node.manager

        def delete_once_begun() -> None:
            """On the loop itself: between two slices, whatever else the machine does."""
            if manager.log("t", 0).log_end_offset:
                manager.delete_topic("t")
            else:
                broker._loop.call_soon(delete_once_begun)

        with broker.client() as bomber:
            bomber.send(self.produced(12, self.BOMB), 9)
            broker.on_loop(delete_once_begun)
            codes = [one.error_code for one in bomber.receive().responses[0].partition_responses]
        assert codes == [0] * codes.count(0) + [3] * codes.count(3) and 3 in codes

    def test_the_broker_ends_meanwhile(self, broker: RunningBroker, client: RawClient) -> None:
        """The request is begun, so it is answered."""
        broker.create_topic("t", partitions=12)
        client.send(self.produced(12, self.BOMB), 9)
        while not broker.on_loop(lambda: broker.node.manager.log("t", 0).log_end_offset):
            pass
        broker.stop()
        assert broker.is_clean
        assert [one.error_code for one in client.receive().responses[0].partition_responses] == [0] * 12


@pytest.mark.parametrize("depth", [1, 3])
def test_requests_of_some_elements_wait_while_rounds_are_full(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    """They are read in turn, from memory of their own, one request of a connection after the other; small ones at once."""
    broker.create_topic("t", partitions=100)
    read_in_turn: list[str] = []
    server = broker.running.server
    dispatcher = server.dispatcher
    read = dispatcher._read_in_turn

    def noted(connection: Any, served: Any, frame: Any) -> None:
        read_in_turn.append(served.metrics.name)
        read(connection, served, frame)

    monkeypatch.setattr(dispatcher, "_read_in_turn", noted)
    monkeypatch.setattr(slices_module, "SLICE_S", 0.0)
    batch = bytes(build_batch_v2([Record(0, 5, CREATE_TIME, b"k", b"small")]))
    produced = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=i, records=batch) for i in range(100)])
        ],
    )
    ends = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(100)])
        ],
    )
    one_end = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=7, timestamp=-1)])]
    )
    wide = MetadataRequest([MetadataRequestTopic(name=f"no-{i}") for i in range(AT_ONCE + 1)], allow_auto_topic_creation=False)
    with broker.client() as client:
        for _ in range(depth):
            client.send(produced, 9)
            client.send(ends, 7)
        for number in range(depth):
            appended = client.receive().responses[0].partition_responses
            assert [one.base_offset for one in appended] == [number] * 100
            assert [one.offset for one in client.receive().topics[0].partitions] == [number + 1] * 100
        assert read_in_turn == ["Produce", "ListOffsets"] * depth
        assert client.ask(one_end, 7).topics[0].partitions[0].offset == depth
        assert [one.error_code for one in client.ask(wide, 8).topics] == [3] * (AT_ONCE + 1)
        assert read_in_turn == [*["Produce", "ListOffsets"] * depth, "Metadata"]
        torn = MetadataRequest([MetadataRequestTopic(name=f"no-{i}") for i in range(100)], allow_auto_topic_creation=False)
        frame = b"".join(request_chunks(torn, 8, 1, "raw"))[4:-9]
        client.send_bytes(len(frame).to_bytes(4, "big") + frame)
        assert client.closed()
        assert read_in_turn[-2:] == ["Metadata"] * 2
        assert broker.node.metrics.counters.malformed_requests == 1
        wait_until(lambda: broker.on_loop(lambda: server.buffers.used_bytes) == 0, "the last frame to be given back")


def test_what_others_have_of_an_answer_is_not_taken_apart(
    broker: RunningBroker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics in an answer to Metadata are kept for the next one, however long the work on the answer took."""
    names = [f"kept-{n}" for n in range(40)]
    for name in names:
        broker.create_topic(name, 2)
    every, by_name = MetadataRequest(None, False), MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)
    twice = MetadataRequest([MetadataRequestTopic(name=name) for name in names * 60], False)
    before = client.ask(every, 9)
    assert {topic.name: len(topic.partitions) for topic in before.topics}.items() >= dict.fromkeys(names, 2).items()
    monkeypatch.setattr(slices_module, "SLICE_S", 0.0)
    monkeypatch.setattr(slices_module, "SHORT_SLICE_S", 0.0)
    for request in (every, by_name, twice):
        wanted = before.topics if request is every else [topic for topic in before.topics if topic.name in names]
        for _ in range(3):
            found = client.ask(request, 9).topics
            assert sorted(map(repr, found)) == sorted(map(repr, wanted))
