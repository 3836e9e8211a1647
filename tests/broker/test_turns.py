"""What comes due for hundreds at one time has turns of the loop, and clients theirs between them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.produce_helpers import produce_request
from tests.broker.transactions.producers import TransactionalProducer
from tests.kafka.java import wait_until
from tidelog.broker.apis import describe_producers, write_txn_markers
from tidelog.broker.coordinators.transactions import transactions as transactions_module
from tidelog.broker.coordinators.transactions.transaction import TransactionState
from tidelog.broker.fetch.fetch_sessions import FetchedPartition
from tidelog.broker.loop.delays import Delays
from tidelog.broker.requests import slices as slices_module
from tidelog.broker.requests.slices import SLICE_S, Slices
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.records import Record
from tidelog.storage import scheduler
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

T0 = 1_600_000_000_000
MINUTE_MS = 60_000
DAY_MS = 1440 * MINUTE_MS
MANY = 300
LONGEST_S = 5 * SLICE_S


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T0)


@pytest.fixture
def broker(start_broker: StartBroker, clock: ManualClock) -> RunningBroker:
    made = start_broker(clock=clock, transaction_state_log_num_partitions=1, offsets_topic_num_partitions=1)
    made.create_topic("t", 1)
    return made


def done_in_turns(broker: RunningBroker, begin: Callable[[], object], is_done: Callable[[], bool]) -> None:
    gc.collect()
    with LoopTurns(broker) as turns:
        broker.on_loop(begin)
        wait_until(lambda: broker.on_loop(is_done), "the last one")
    assert turns.longest.seconds < LONGEST_S, turns.turns[:3]


def test_an_incremental_fetch_is_compared_in_turns(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of very many partitions: counted is how many are compared in one turn, where a turn is as short as can be."""
    compared = [0]
    turn, is_news = Slices._turn, FetchedPartition.is_news

    def counted(one: FetchedPartition, answer: PartitionData, size_bytes: int) -> bool:
        compared[-1] += 1
        return is_news(one, answer, size_bytes)

    def turned(slices: Slices) -> None:
        compared.append(0)
        turn(slices)

    monkeypatch.setattr(FetchedPartition, "is_news", counted)
    monkeypatch.setattr(Slices, "_turn", turned)
    monkeypatch.setattr(slices_module, "SLICE_S", 0.0)
    monkeypatch.setattr(slices_module, "SHORT_SLICE_S", 0.0)
    named = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1) for i in range(1, 6_001)]
    asked = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1, session_epoch=0, topics=[FetchTopic(topic="t", partitions=named)]
    )
    with broker.client() as client:
        session_id = client.ask(asked, 12).session_id
        asked.session_id, asked.session_epoch, asked.topics = session_id, 1, []
        assert client.ask(asked, 12).session_id == session_id
    assert sum(compared) == 6_000
    assert max(compared) <= 1024


def test_transactions_that_time_out_and_ids_that_expire(broker: RunningBroker, clock: ManualClock) -> None:
    transactions = broker.node.transactions
    with TransactionalProducer(broker.address, "first") as first:
        assert first.init() == ErrorCode.NONE  # The topic is there now.

    def begin(number: int) -> None:
        code, given = transactions.init_producer_id(f"id-{number}", MINUTE_MS, None)
        assert code is ErrorCode.NONE
        added = transactions.add_partitions(f"id-{number}", *given, [TopicPartition("t", 0)])
        assert added is ErrorCode.NONE

    for number in range(MANY):
        broker.on_loop(lambda: begin(number))  # noqa: B023
    clock.advance(2 * MINUTE_MS)
    ended = (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT)
    done_in_turns(broker, transactions.abort_timed_out, lambda: all(one.state in ended for one in transactions.all()))
    assert broker.on_loop(lambda: len(transactions.all())) == MANY + 1
    clock.advance(8 * DAY_MS)
    done_in_turns(broker, transactions.expire, lambda: not transactions.all())


def test_offsets_of_a_topic_that_goes(broker: RunningBroker) -> None:
    """Group by group: those that are left are forgotten in turns, before the deletion is answered."""
    broker.create_topic("going", 1)
    groups = broker.node.groups
    with broker.client() as client:
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        for number in range(40):
            named = [
                OffsetCommitRequestTopic(name, partitions=[OffsetCommitRequestPartition(0, 5, committed_metadata="")])
                for name in (["going"] if number % 2 else ["going", "t"])
            ]
            answer = client.ask(OffsetCommitRequest(f"g-{number}", topics=named), 7)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        forgetting = broker.on_loop(lambda: sum(1 for _ in groups.topic_deleted("no such topic")))
        assert forgetting == 40 // 16
        deleted = client.ask(DeleteTopicsRequest(topic_names=["going"], timeout_ms=60_000), 4)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        left = broker.on_loop(lambda: {group.group_id: list(group.offsets.partitions()) for group in groups.all()})
        assert left == {f"g-{number}": [TopicPartition("t", 0)] for number in range(0, 40, 2)}


def test_transactions_of_a_partition_that_returns(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are decided, and that nothing completes, are completed in turns; none is that belongs elsewhere, or is gone."""
    transactions = broker.node.transactions
    with TransactionalProducer(broker.address, "first") as first:
        assert first.init() == ErrorCode.NONE
    decided = [f"id-{number}" for number in range(20)]
    seen: list[str] = []
    turns: list[int] = []
    others: list[str] = []
    """One that something else completes, and one that goes before its turn: of ids in any order, the last two."""

    def look() -> None:
        log = broker.node.manager.log("__transaction_state", 0)
        for transactional_id in decided:
            assert transactions.init_producer_id(transactional_id, MINUTE_MS, None)[0] is ErrorCode.NONE
        monkeypatch.setattr(transactions_module, "PREPARED", (TransactionState.EMPTY,))
        monkeypatch.setattr(transactions, "_complete", lambda one: seen.append(one.transactional_id))
        monkeypatch.setattr(slices_module, "SLICE_S", 0.0)
        others.extend(list(transactions._kept_in[0])[:2])
        monkeypatch.setattr(transactions, "_completions", {others[0]: None})
        transactions.on_return(log)
        turns.append(len(seen))
        transactions.on_return(broker.node.manager.log("t", 0))
        transactions._known.pop(others[1])

    broker.on_loop(look)
    wait_until(lambda: broker.on_loop(lambda: len(seen) >= len(decided) - 1), "the last one")
    assert turns == [1]
    assert {*seen} == {"first", *decided} - {*others}


def test_producers_of_one_partition_are_described_in_turns(broker: RunningBroker) -> None:
    with broker.client() as client:
        for producer_id in range(600):
            sent = bytes(build_batch_v2([Record(0, T0, CREATE_TIME, None, b"v")], producer=Producer(producer_id, 0, 0)))
            client.ask(produce_request(sent), 9)
        asked = DescribeProducersRequest(topics=[TopicRequest("t", [0, 0])])
        described = client.ask(asked, 0).topics[0].partitions
    assert [[one.producer_id for one in partition.active_producers] for partition in described] == [list(range(600))] * 2
    turns = broker.on_loop(lambda: sum(1 for _ in describe_producers.handle(broker.node, asked, None)))  # type: ignore[arg-type]
    assert turns >= 2 * (600 // 256 + 1)


def test_markers_of_many_partitions_are_waited_for_in_turns(broker: RunningBroker) -> None:
    broker.create_topic("wide", 300)
    keys = [TopicPartition("wide", partition) for partition in range(300)]

    def turns() -> int:
        codes = {7: dict.fromkeys(keys, ErrorCode.NONE), 8: dict.fromkeys(keys[:10], ErrorCode.NONE)}
        count = sum(step is None for step in write_txn_markers._committed(broker.node, codes))
        assert codes[7] == dict.fromkeys(keys, ErrorCode.NONE)
        return count

    assert broker.on_loop(turns) >= 300 // 64
    marker = WritableTxnMarker(7, 0, transaction_result=True, topics=[WritableTxnMarkerTopic("wide", [*range(300), 300])])
    with broker.client() as client:
        (result,) = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    codes = [one.error_code for one in result.topics[0].partitions]
    assert codes == [ErrorCode.NONE] * 300 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_sessions_that_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand timers may be due at the same millisecond: some at a time are called, in order; by hand all at once."""

    class Soon:
        def __init__(self) -> None:
            self.waiting: list[Callable[[], None]] = []

        def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Soon:
            self.waiting.append(callback)
            return self

        def cancel(self) -> None:
            raise AssertionError("nobody cancels these")

    monkeypatch.setattr(scheduler, "SLICE_S", 0)
    clock, soon, ended = ManualClock(T0), Soon(), list[int]()
    delays = Delays(soon, clock)
    for number in range(5):
        delays.call_later(10, partial(ended.append, number), "session")
    clock.advance(10)
    for number in range(5):
        assert len(soon.waiting) == 1
        soon.waiting.pop()()
        assert ended == list(range(number + 1))
    assert not soon.waiting
    for number in range(5):
        delays.call_later(10, partial(ended.append, number), "session")
    clock.advance(10)
    assert delays.tick() == 5


def test_offsets_that_expire(broker: RunningBroker, clock: ManualClock) -> None:
    with broker.client() as client:
        client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        for number in range(MANY):
            asked = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5, committed_metadata="")])
            answer = client.ask(OffsetCommitRequest(f"g-{number}", topics=[asked]), 7)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    groups = broker.node.groups
    assert broker.on_loop(lambda: len(groups.all())) == MANY
    clock.advance(8 * DAY_MS)
    done_in_turns(broker, groups.expire, lambda: not groups.all())
