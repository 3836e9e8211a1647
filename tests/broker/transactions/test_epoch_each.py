"""Producers with an epoch for each transaction (KIP-890, `transaction.version` 2): EndTxn 5, Produce 12, TxnOffsetCommit 5."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.conftest import RunningBroker
from tests.broker.transactions.producers import TransactionalProducer, committed, producers, write_markers
from tests.kafka.java import wait_until
from tests.storage.producers import PRODUCER, batch, manager
from tidelog.broker.coordinators.transactions.transaction import (
    LAST_GIVEN_EPOCH,
    PREPARED,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    ended_in_next_epoch,
)
from tidelog.broker.coordinators.transactions.transaction_records import read_transaction, transaction_entry
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.records.control import ControlType, EndTxnMarker
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NONE = ErrorCode.NONE
KEY = TopicPartition("t", 0)
NEXT_ID = 1000

_names = count()


# --- the rules


def ended(before: Transaction, producer: tuple[int, int], *, is_commit: bool = True) -> Transaction | ErrorCode:
    return ended_in_next_epoch(before, ProducerIdAndEpoch(*producer), is_commit=is_commit, now_ms=2, new_id=lambda: NEXT_ID)


def begun(epoch: int = 3) -> Transaction:
    return Transaction("me", 7, epoch, 60_000).with_partitions([KEY], 1, 2)


def test_each_end_raises_the_epoch() -> None:
    prepared = ended(begun(), (7, 3))
    assert isinstance(prepared, Transaction)
    assert (prepared.state, prepared.producer_epoch, prepared.goes_on_as) == (TransactionState.PREPARE_COMMIT, 4, (7, 4))
    assert ended(prepared, (7, 3)) is ErrorCode.CONCURRENT_TRANSACTIONS, "asked again, while markers are written"
    assert ended(prepared, (7, 4)) is ErrorCode.CONCURRENT_TRANSACTIONS, "the next one, whose records wait"
    assert ended(prepared, (7, 3), is_commit=False) is ErrorCode.INVALID_TXN_STATE
    done = prepared.completed(3)
    assert ended(done, (7, 3)) is done, "its answer was lost"
    assert ended(done, (7, 4)) is ErrorCode.INVALID_TXN_STATE, "nothing was begun that could be committed"
    assert ended(done, (7, 2)) is ErrorCode.PRODUCER_FENCED
    assert ended(done, (8, 3)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    aborted = ended(done, (7, 4), is_commit=False)
    assert isinstance(aborted, Transaction)
    assert (aborted.state, aborted.producer_epoch, aborted.partitions) == (TransactionState.PREPARE_ABORT, 5, frozenset())


def test_the_last_epoch_leads_to_another_id() -> None:
    prepared = ended(begun(LAST_GIVEN_EPOCH), (7, LAST_GIVEN_EPOCH))
    assert isinstance(prepared, Transaction)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.goes_on_as) == (7, LAST_GIVEN_EPOCH + 1, (NEXT_ID, 0))
    for one in (prepared, read_transaction("me", transaction_entry(prepared)[1])):
        done = one.completed(3)
        assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (NEXT_ID, 0, -1)
        for known in (done, read_transaction("me", transaction_entry(done)[1])):
            assert ended(known, (7, LAST_GIVEN_EPOCH)) is known, "its answer was lost"


def test_who_was_fenced_stays_so() -> None:
    fenced = begun().fenced(2)
    for one in (fenced, fenced.completed(3)):
        assert ended(one, (7, 3), is_commit=False) is ErrorCode.PRODUCER_FENCED


steps = st.lists(st.sampled_from(["add", "commit", "abort", "again", "complete", "load", "fence"]), max_size=30)


@given(steps, st.integers(LAST_GIVEN_EPOCH - 3, LAST_GIVEN_EPOCH))
def test_a_producer_goes_on_from_answer_to_answer(wanted: list[str], epoch: int) -> None:
    """Whatever is asked twice, loaded or fenced in between: nobody has two transactions in one epoch; who is fenced stays so."""
    now, has, before = Transaction("me", 7, epoch, 60_000), (7, epoch), None
    used: set[tuple[int, int]] = set()
    is_fenced = False
    for step in wanted:
        if step == "add" and now.refusal(*has) is NONE and now.state not in PREPARED:
            if now.state is not TransactionState.ONGOING:
                assert has not in used, "two transactions in an epoch"
                used.add(has)
            now = now.with_partitions([KEY], 1, 2)
        elif step in ("commit", "abort", "again"):
            asking = before if step == "again" and before else (has, step == "commit")
            after = ended(now, asking[0], is_commit=asking[1])
            if isinstance(after, Transaction):
                assert not is_fenced
                has, before, now = after.goes_on_as, asking, after
        elif step == "complete" and now.state in PREPARED:
            now = now.completed(3)
        elif step == "load":
            now = read_transaction("me", transaction_entry(now)[1])
        elif step == "fence" and now.state is TransactionState.ONGOING and now.producer_epoch <= LAST_GIVEN_EPOCH:
            now, is_fenced = now.fenced(2), True


# --- over the wire


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(
        tmp_path_factory.mktemp("epochs"), transaction_state_log_num_partitions=2, offsets_topic_num_partitions=2
    )
    running.create_topic("t", 2)
    yield running
    running.stop()


@pytest.fixture
def me(broker: RunningBroker) -> Iterator[TransactionalProducer]:
    with TransactionalProducer(broker.address, f"me-{next(_names)}") as producer:
        assert producer.init() == NONE
        yield producer


def end(me: TransactionalProducer, *, is_commit: bool = True) -> int:
    """End the transaction, and go on with what is answered."""
    answer = me.client.ask(EndTxnRequest(me.transactional_id, me.producer_id, me.epoch, is_commit), 5)
    if not answer.error_code:
        me.producer_id, me.epoch = answer.producer_id, answer.producer_epoch
        me.sequences.clear()
    else:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    return int(answer.error_code)


def is_ended(me: TransactionalProducer, *, is_commit: bool) -> bool:
    """End the transaction; return whether that is answered, or must be asked again because its markers are being written."""
    code = end(me, is_commit=is_commit)
    assert code in (NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
    return code == NONE


def commit_offset(me: TransactionalProducer, offset: int) -> int:
    partition = TxnOffsetCommitRequestPartition(0, offset, committed_metadata=None)
    topics = [TxnOffsetCommitRequestTopic("t", partitions=[partition])]
    request = TxnOffsetCommitRequest(me.transactional_id, "group", me.producer_id, me.epoch, topics=topics)
    (one,) = me.client.ask(request, 5).topics[0].partitions
    return int(one.error_code)


def test_nothing_has_to_be_added(broker: RunningBroker, me: TransactionalProducer) -> None:
    """Partitions and the group are added by those that get records of the transaction."""
    for turn in range(3):
        assert me.epoch == turn
        assert me.produce("t", 0, version=12) == me.produce("t", 1, version=12) == me.produce("t", 0, version=12) == NONE
        assert commit_offset(me, turn) == NONE
        described = me.described()
        assert [(one.topic, sorted(one.partitions)) for one in sorted(described.topics, key=lambda topic: topic.topic)][1] == (
            "t",
            [0, 1],
        )
        before = me.twin()
        assert end(me, is_commit=turn != 1) == NONE
        wait_until(partial(is_ended, before, is_commit=turn != 1), "its markers")
        assert (before.producer_id, before.epoch) == (me.producer_id, me.epoch)
    found = [offset for producer_id, offset in committed(me.client, "t") if producer_id == me.producer_id]
    assert len(found) == 4, "the second transaction was aborted"
    (state,) = [one for one in producers(me.client, "t") if one.producer_id == me.producer_id]
    assert state.producer_epoch == 3, "markers are of the next epoch"


def test_what_is_late_is_in_no_transaction(me: TransactionalProducer) -> None:
    assert me.produce("t", version=12) == NONE
    late = me.twin()
    assert end(me) == NONE
    assert late.produce("t", version=12) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(late, is_commit=False) == ErrorCode.INVALID_TXN_STATE, "it was committed"
    assert me.produce("t", version=12) == end(me) == NONE
    assert end(late) == ErrorCode.PRODUCER_FENCED


def test_an_abort_of_nothing(me: TransactionalProducer) -> None:
    assert end(me) == ErrorCode.INVALID_TXN_STATE
    assert end(me, is_commit=False) == NONE and me.epoch == 1
    assert me.produce("t", version=12) == end(me) == NONE and me.epoch == 2


def test_both_kinds_of_ends(me: TransactionalProducer) -> None:
    """A client that does not know of epochs goes on in its own."""
    assert me.add(("t", 0)) == me.produce("t") == me.end(version=4) == NONE
    assert me.produce("t", version=12) == end(me) == NONE
    assert me.add(("t", 0)) == me.produce("t") == me.end(version=4) == NONE
    assert me.described().producer_epoch == me.epoch == 1


def test_a_marker_that_comes_twice_ends_no_later_transaction(broker: RunningBroker, me: TransactionalProducer) -> None:
    """KIP-1228: the marker of one transaction has the epoch of the next."""
    assert me.produce("t", version=12) == end(me) == me.produce("t", version=12) == NONE
    late = write_markers(me.client, (me.producer_id, me.epoch), ("t", 0), version=2, transaction_version=2)
    assert late == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert me.described().transaction_state == "Ongoing"
    assert me.produce("t", version=12) == end(me) == NONE


def test_the_marker_before_takes_no_guard_away(tmp_path: Path) -> None:
    """The next transaction may be verified before the marker of the one before has come; its epoch is the same."""
    state = manager(tmp_path, ManualClock(0))
    state.replay(batch(0, 0, transactional=True))
    guard = state.maybe_create_verification(PRODUCER, 0, 1, has_epoch_each=True)
    state.replay(batch(-1, 1, epoch=1, transactional=True, control=True), EndTxnMarker(ControlType.COMMIT, 0))
    assert state.verification(PRODUCER) is guard
    state.replay(batch(-1, 2, epoch=2, transactional=True, control=True), EndTxnMarker(ControlType.ABORT, 0))
    assert state.verification(PRODUCER) is None, "it was fenced"
