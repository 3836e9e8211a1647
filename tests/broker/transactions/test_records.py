"""Records of ``__transaction_state``: Kafka's bytes, other versions, what is skipped, what stops a partition."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.produce_helpers import NOW_MS
from tests.broker.transactions.producers import TransactionalProducer, wait_until_loaded
from tidelog import Broker
from tidelog.broker.coordinators.transactions.transaction import STATES_BY_TEXT, Transaction, TransactionState
from tidelog.broker.coordinators.transactions.transaction_records import (
    read_transaction,
    read_transactions,
    transaction_entry,
    transaction_key,
)
from tidelog.broker.serving_broker import ServingBroker
from tidelog.clock import ManualClock
from tidelog.errors import ProtocolError
from tidelog.model import TopicPartition
from tidelog.records.state_batches import StateBatch, StateRecord
from tidelog.wire.coordinator.transaction_log import PartitionsSchema, TransactionLogValue
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode

ME = Transaction(
    "me", 7, 3, 60_000, TransactionState.ONGOING, frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}), 1000, 2000
)
ME_KEY = b"\0\0" + b"\0\2me"
ME_VALUE = b"".join(
    (
        b"\0\0",
        struct.pack(">qhib", 7, 3, 60_000, 1),
        struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iii", 2, 0, 1),
        struct.pack(">qq", 2000, 1000),
    )
)


def batch(*records: tuple[bytes | None, bytes | None]) -> StateBatch:
    found = [StateRecord(offset, 0, key, value) for offset, (key, value) in enumerate(records)]
    return StateBatch(-1, -1, False, None, found)


def test_bytes() -> None:
    assert transaction_entry(ME) == (ME_KEY, ME_VALUE)
    empty = transaction_entry(Transaction("me", 7, 3, 60_000, updated_ms=2000))[1]
    assert empty == b"\0\0" + struct.pack(">qhibiqq", 7, 3, 60_000, 0, -1, 2000, -1)
    assert transaction_key("me") == ME_KEY


KEPT = [state for state in TransactionState if state <= TransactionState.COMPLETE_ABORT]
_PARTITIONS = st.frozensets(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 99)), max_size=6)


@given(
    st.tuples(
        st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(1, 2**31 - 1),
        st.sampled_from(KEPT),
        _PARTITIONS,
        st.integers(-1, 2**60),
        st.integers(-1, 2**60),
    ).map(lambda fields: Transaction(*fields))
)
def test_there_and_back(transaction: Transaction) -> None:
    if transaction.state is TransactionState.EMPTY:
        transaction = transaction._replace(partitions=frozenset())
    key, value = transaction_entry(transaction)
    assert read_transactions(iter([batch((key, value))])) == {transaction.transactional_id: transaction}


def test_the_last_record_counts() -> None:
    ended = ME._replace(state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())
    other = ME._replace(transactional_id="you")
    batches = [
        batch(transaction_entry(ME), transaction_entry(other)),
        batch(transaction_entry(ended), (transaction_key("you"), None)),
    ]
    assert read_transactions(iter(batches)) == {"me": ended}


def test_a_value_of_a_producer_with_an_epoch_each() -> None:
    """Kafka 4 writes version 1, and so does Tidelog then."""
    value = TransactionLogValue(
        producer_id=7,
        previous_producer_id=6,
        next_producer_id=8,
        producer_epoch=3,
        next_producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema("t", [0, 1])],
        transaction_last_update_timestamp_ms=2000,
        transaction_start_timestamp_ms=1000,
        client_transaction_version=2,
    )
    found = read_transaction("me", encode_versioned(value, 1))
    assert found == ME._replace(last_producer_id=6, next_producer_id=8, client_version=2)
    value.next_producer_epoch = -1  # Of two phases of commit, which are not served.
    assert transaction_entry(found)[1] == encode_versioned(value, 1)
    ended = found.prepared(is_commit=True, now_ms=1)._replace(client_version=2)
    assert read_transaction("me", transaction_entry(ended)[1]).is_ended_in(7, 2), "asked again after the broker's end"


def test_what_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidelog.broker"):
        found = read_transactions(iter([batch((b"\0\x09key", b"value"), (None, b"value"), transaction_entry(ME))]))
    assert found == {"me": ME}
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    "value",
    [b"", b"\0\x09", ME_VALUE[:-1], transaction_entry(ME._replace(state=TransactionState.DEAD))[1], b"\0\0" + b"\x7f" * 60],
)
def test_what_cannot_be_read(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_transactions(iter([batch((ME_KEY, value))]))


def test_states_have_kafkas_names() -> None:
    assert list(STATES_BY_TEXT) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_partition_that_cannot_be_read(tmp_path: Path) -> None:
    """It has no coordinator; the other ones have."""
    with Broker(tmp_path / "data", transaction_state_log_num_partitions=2) as broker:
        address = "127.0.0.1", broker.port
        with TransactionalProducer(address, "a") as one, TransactionalProducer(address, "b") as other:
            assert one.init() == other.init() == ErrorCode.NONE

        def damage(running: ServingBroker) -> None:
            log = running.node.transactions.log
            assert log.partition_of("a") != log.partition_of("b")
            log.append(log.partition_of("a"), [(transaction_key("a"), b"\0\0nonsense")])

        broker.call(damage)
        broker.stop()
        broker.start()
        address = "127.0.0.1", broker.port
        with TransactionalProducer(address, "a") as one, TransactionalProducer(address, "b") as other:
            wait_until_loaded(one.client)
            assert [one.init(), other.init()] == [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
            assert one.end() == one.described().error_code == ErrorCode.NOT_COORDINATOR


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    """What could not be written has changed nothing: no epoch is given, nothing is decided, aborted or forgotten."""
    clock = ManualClock(NOW_MS)
    with Broker(tmp_path / "data", clock=clock, transaction_state_log_num_partitions=1) as broker:
        broker.call(lambda running: running.node.manager.create_topic("t", 1, {}))
        with TransactionalProducer(("127.0.0.1", broker.port)) as me:
            me.transactional_id = "idle"
            me.init()
            me.transactional_id = "me"
            me.init()
            me.write(("t", 0))

            def refuse(running: ServingBroker) -> None:
                running.node.manager.offline.stop()  # It would come back: this disk is well.
                running.node.manager.log("__transaction_state", 0).go_offline("a test", OSError(5, "no disk"))

            broker.call(refuse)
            assert me.end() == me.add(("t", 0)) == me.init() == ErrorCode.NOT_COORDINATOR
            assert me.produce("t") == ErrorCode.NONE
            clock.advance(8 * 24 * 3_600_000)
            known = broker.call(lambda running: list(running.node.transactions.all()))
            assert [(one.transactional_id, one.state.text, one.producer_epoch) for one in known] == [
                ("idle", "Empty", 0),
                ("me", "Ongoing", 0),
            ]
        broker.kill()
        broker.start()
        with TransactionalProducer(("127.0.0.1", broker.port)) as again:
            again.producer_id, again.epoch = me.producer_id, me.epoch
            wait_until_loaded(again.client)
            assert again.end() == ErrorCode.NONE
            assert again.described().transaction_state == "CompleteCommit"
