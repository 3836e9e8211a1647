"""The transactions' coordinator over the wire: ids and epochs, what belongs to a transaction, its end, timeouts, a restart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.broker import topics_now
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.transactions.producers import (
    TransactionalProducer,
    committed,
    describe,
    find_coordinator,
    offset_of,
    producers,
    wait_until_loaded,
)
from tests.kafka.java import wait_until
from tidelog import Broker
from tidelog.broker.coordinators.state_log import read_batches
from tidelog.broker.coordinators.transactions.transaction import Transaction
from tidelog.broker.coordinators.transactions.transaction_records import read_transactions, transaction_entry
from tidelog.broker.serving_broker import ServingBroker
from tidelog.clock import ManualClock
from tidelog.model import TRANSACTIONS_TOPIC
from tidelog.storage.log_manager import LogManager
from tidelog.storage.producers.producer_ids import LOWEST_ID
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest

T0 = 1_700_000_000_000
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
PROPERTIES: dict[str, Any] = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 3}

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
_names = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("transactions"), **PROPERTIES)
    broker.create_topic("t", 3)
    yield broker
    broker.stop()


@pytest.fixture
def me(shared: RunningBroker) -> Iterator[TransactionalProducer]:
    """A producer with a transactional id that nobody had before."""
    with TransactionalProducer(shared.address, f"me-{next(_names)}") as producer:
        yield producer


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    def test_the_epoch_grows(self, me: TransactionalProducer, version: int) -> None:
        assert me.init(version) == NONE
        first = me.producer_id
        assert first >= LOWEST_ID
        assert [me.epoch, me.init(version), me.epoch, me.producer_id] == [0, NONE, 1, first]

    def test_without_a_coordinator(self, start_broker: StartBroker) -> None:
        """There is one once somebody has looked it up."""
        broker = start_broker(**PROPERTIES)
        with TransactionalProducer(broker.address, is_found=False) as me:
            assert me.init() == ErrorCode.NOT_COORDINATOR
            find_coordinator(me.client, me.transactional_id)
            assert me.init() == NONE

    @pytest.mark.parametrize("timeout_ms", [-1, 0, 15 * MINUTE_MS + 1])
    def test_a_timeout_out_of_range(self, me: TransactionalProducer, timeout_ms: int) -> None:
        me.timeout_ms = timeout_ms
        assert me.init() == ErrorCode.INVALID_TRANSACTION_TIMEOUT

    def test_an_open_transaction_is_aborted_first(self, me: TransactionalProducer) -> None:
        me.init()
        me.write(("t", 0))
        other = me.twin()
        assert other.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (other.described().transaction_state, other.described().producer_epoch) == ("CompleteAbort", 1)
        assert [other.init(), other.epoch] == [NONE, 2]
        for version, code in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, FENCED)):
            assert me.end(version=version) == me.add(("t", 1), version=version) == me.add_offsets("g", version) == code
        assert me.produce("t") == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_producer_that_goes_on(self, me: TransactionalProducer) -> None:
        """KIP-360: the epoch grows if it is the one that it has; asked again, it is the same; whoever is fenced stays so."""
        me.init()
        retrying = me.twin()
        assert [me.init(is_known=True), me.epoch] == [NONE, 1]
        assert [retrying.init(is_known=True), retrying.epoch] == [NONE, 1]
        late = me.twin()
        assert [me.init(is_known=True), me.epoch] == [NONE, 2]
        assert [me.init(), me.epoch] == [NONE, 3]
        assert late.init(is_known=True) == FENCED
        assert late.init(3, is_known=True) == ErrorCode.INVALID_PRODUCER_EPOCH
        late.producer_id += 1
        assert late.init(is_known=True) == FENCED

    def test_an_id_whose_epochs_are_used_up(self, start_broker: StartBroker) -> None:
        """The last epoch is for fencing; a new producer id begins at 0, and a lost answer is given again."""
        broker = start_broker(**PROPERTIES)
        broker.create_topic("t")
        with TransactionalProducer(broker.address) as me:
            me.init()

            def use_up() -> None:
                old = broker.node.transactions.get("me")
                assert old is not None
                entry = transaction_entry(old._replace(producer_epoch=32765))
                log = broker.node.transactions.log
                log.append(log.partition_of("me"), [entry])

            broker.on_loop(use_up)
        broker.stop()
        broker.start()
        with TransactionalProducer(broker.address) as me:
            wait_until_loaded(me.client)
            assert (me.init(), me.epoch) == (NONE, 32766)
            first = me.producer_id
            me.write(("t", 0))
            other = me.twin()
            assert other.init() == ErrorCode.CONCURRENT_TRANSACTIONS
            assert other.described().producer_epoch == 32767
            assert [other.init(), other.epoch] == [NONE, 0]
            assert other.producer_id != first
            assert committed(me.client, "t") == []


class TestPartitions:
    @pytest.mark.parametrize("version", range(6))
    def test_each_version(self, me: TransactionalProducer, version: int) -> None:
        me.init()
        assert me.add(("t", 0), ("t", 2), version=version) == NONE
        assert me.add(("t", 2), ("t", 1), version=version) == NONE
        state = me.described()
        assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (NONE, "Ongoing", MINUTE_MS)
        assert [(one.topic, one.partitions) for one in state.topics] == [("t", [0, 1, 2])]
        assert state.transaction_start_time_ms > 0

    def test_an_unknown_partition_spoils_all(self, me: TransactionalProducer) -> None:
        me.init()
        assert me.added([("t", 0), ("t", 3), ("no-such", 0)]) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("no-such", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert me.described().transaction_state == "Empty"

    def test_who_may(self, me: TransactionalProducer) -> None:
        assert me.add(("t", 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        me.init()
        other = me.twin()
        other.producer_id += 1
        assert other.add(("t", 0)) == other.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        other.producer_id, other.epoch = me.producer_id, me.epoch + 1
        assert other.add(("t", 0)) == other.end() == FENCED
        other.transactional_id = ""
        assert other.add(("t", 0)) == other.end() == other.add_offsets("g") == ErrorCode.INVALID_REQUEST

    def test_asking_only(self, me: TransactionalProducer) -> None:
        me.init()
        me.add(("t", 0))
        keys = [("t", 0), ("t", 1)]
        assert me.added(keys, 4, verify_only=True) == {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}
        me.epoch += 1
        assert set(me.added(keys, 4, verify_only=True).values()) == {FENCED}
        me.transactional_id = "nobody"
        assert set(me.added(keys, 4, verify_only=True).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    def test_nothing_asked_for(self, me: TransactionalProducer) -> None:
        """Kafka never answers that one."""
        assert me.client.ask(AddPartitionsToTxnRequest([]), 4).results_by_transaction == []

    def test_groups(self, me: TransactionalProducer) -> None:
        """A group is its partition of the committed offsets, to whoever describes the transaction."""
        me.init()
        assert [me.add_offsets("g", version) for version in range(5)] == [NONE] * 5
        assert [one.topic for one in me.described().topics] == ["__consumer_offsets"]


class TestEnd:
    @pytest.mark.parametrize("version", range(5))
    @pytest.mark.parametrize("is_commit", [True, False])
    def test_twice_is_no_error(self, me: TransactionalProducer, version: int, is_commit: bool) -> None:
        """But the other end is."""
        me.init()
        me.write(("t", 1))
        assert me.end(is_commit=is_commit, version=version) == me.end(is_commit=is_commit, version=version) == NONE
        assert me.end(is_commit=not is_commit, version=version) == ErrorCode.INVALID_TXN_STATE
        assert me.described().transaction_state == ("CompleteCommit" if is_commit else "CompleteAbort")
        assert me.described().topics == []
        assert (me.producer_id in {one for one, _ in committed(me.client, "t", 1)}) == is_commit

    def test_nothing_to_end(self, me: TransactionalProducer) -> None:
        assert me.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        me.init()
        assert me.end() == ErrorCode.INVALID_TXN_STATE

    def test_without_records(self, me: TransactionalProducer) -> None:
        """The marker is written all the same."""
        me.init()
        me.add(("t", 2))
        before = offset_of(me.client, "t", partition=2)
        assert me.end() == NONE
        assert offset_of(me.client, "t", partition=2) == before + 1

    def test_a_topic_that_is_gone(self, me: TransactionalProducer, shared: RunningBroker) -> None:
        shared.create_topic("gone")
        me.init()
        me.write(("gone", 0), ("t", 0))
        shared.on_loop(lambda: topics_now.delete(shared.node, "gone"))
        assert me.end() == NONE
        assert me.described().transaction_state == "CompleteCommit"


class TestLists:
    def test_filters(self, start_broker: StartBroker) -> None:
        clock = ManualClock(T0)
        broker = start_broker(clock=clock, **PROPERTIES)
        broker.create_topic("t")
        with TransactionalProducer(broker.address, "old") as old, TransactionalProducer(broker.address, "new") as new:
            old.init()
            new.init()
            old.add(("t", 0))
            clock.advance(5000)
            new.add(("t", 0))
            new.end()

            def listed(states: list[str] = [], ids: list[int] = [], duration_ms: int = -1) -> dict[str, str]:  # noqa: B006
                answer = old.client.ask(ListTransactionsRequest(states, ids, duration_ms), 1)
                assert (answer.error_code, answer.unknown_state_filters) == (NONE, ["Nonsense"] if "Nonsense" in states else [])
                return {one.transactional_id: one.transaction_state for one in answer.transaction_states}

            assert listed() == {"old": "Ongoing", "new": "CompleteCommit"}
            assert listed(["Ongoing", "Nonsense"]) == {"old": "Ongoing"}
            assert listed(["Nonsense"]) == {}
            assert listed(ids=[new.producer_id]) == {"new": "CompleteCommit"}
            assert listed(duration_ms=4999) == {"old": "Ongoing"}
            assert listed(duration_ms=5000) == {}

    def test_who_is_not_known(self, me: TransactionalProducer) -> None:
        assert describe(me.client, "nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert describe(me.client, "").error_code == ErrorCode.INVALID_REQUEST


class TestTime:
    """A broker whose clock is moved by hand."""

    def test_a_transaction_that_takes_too_long(self, tmp_path: Path) -> None:
        """It is aborted, its producer fenced; a restart does not give it more time; partitions that were added do not either."""
        clock = ManualClock(T0)
        broker = Broker(tmp_path / "data", clock=clock, **PROPERTIES)
        with broker:
            broker.call(lambda running: running.node.manager.create_topic("t", 2, {}))
            with TransactionalProducer(("127.0.0.1", broker.port)) as me:
                me.init()
                me.write(("t", 0))
                clock.advance(MINUTE_MS - 15_000)
                me.write(("t", 1))
                epoch = me.epoch
            broker.kill()
            broker.start()
            with TransactionalProducer(("127.0.0.1", broker.port)) as me:
                wait_until_loaded(me.client)
                clock.advance(15_000)
                assert me.described().transaction_state == "Ongoing"
                clock.advance(10_001)
                state = me.described()
                assert (state.transaction_state, state.producer_epoch) == ("CompleteAbort", epoch + 1)
                me.producer_id, me.epoch = state.producer_id, epoch
                assert me.end() == FENCED
                assert committed(me.client, "t") == committed(me.client, "t", 1) == []
                assert [offset_of(me.client, "t", partition=one) for one in (0, 1)] == [2, 2]

    def test_ids_expire(self, tmp_path: Path) -> None:
        """After a week without a transaction, for good; one with a transaction does not."""
        clock = ManualClock(T0)
        with Broker(tmp_path / "data", clock=clock, transaction_max_timeout_ms=20 * DAY_MS, **PROPERTIES) as broker:
            broker.call(lambda running: running.node.manager.create_topic("t", 1, {}))
            address = "127.0.0.1", broker.port
            with TransactionalProducer(address, "idle") as idle, TransactionalProducer(address, "busy") as busy:
                busy.timeout_ms = 20 * DAY_MS
                first = idle.init(), idle.producer_id
                busy.init()
                busy.add(("t", 0))
                clock.advance(7 * DAY_MS - 1)
                assert idle.described().error_code == NONE
                clock.advance(60 * MINUTE_MS)
                assert idle.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                assert busy.described().transaction_state == "Ongoing"
            broker.stop()
            broker.start()
            with TransactionalProducer(("127.0.0.1", broker.port), "idle") as idle:
                wait_until_loaded(idle.client)
                assert idle.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                assert (idle.init(), idle.epoch) == (NONE, 0)
                assert idle.producer_id != first[1]
                assert describe(idle.client, "busy").transaction_state == "Ongoing"

    def test_long_ids_expire(self, tmp_path: Path) -> None:
        """All of them do not fit into one batch."""
        clock = ManualClock(T0)
        with Broker(tmp_path / "data", clock=clock, **PROPERTIES | {"transaction_state_log_num_partitions": 1}) as broker:
            names = [f"{number}{'n' * 30_000}" for number in range(40)]
            for name in names:
                with TransactionalProducer(("127.0.0.1", broker.port), name) as one:
                    assert one.init() == NONE
            clock.advance(7 * DAY_MS + 60 * MINUTE_MS)
            with TransactionalProducer(("127.0.0.1", broker.port), names[0]) as one:
                wait_until(
                    lambda: {describe(one.client, name).error_code for name in names} == {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND},
                    "all to expire",
                )


class TestRestart:
    @pytest.mark.parametrize("is_commit", [True, False])
    def test_what_was_decided_is_completed(self, tmp_path: Path, is_commit: bool) -> None:
        """The broker died after the decision: markers in no partition, or in some of them already."""
        with Broker(tmp_path / "data", **PROPERTIES) as broker:
            broker.call(lambda running: running.node.manager.create_topic("t", 2, {}))
            with TransactionalProducer(("127.0.0.1", broker.port)) as me:
                me.init()
                me.write(("t", 0), ("t", 1))
                producer_id = me.producer_id

                def decide(running: ServingBroker) -> None:
                    transactions = running.node.transactions
                    transaction = transactions.get("me")
                    assert isinstance(transaction, Transaction)
                    decided = transaction.prepared(is_commit=is_commit, now_ms=transaction.updated_ms)
                    transactions.log.append(transactions.log.partition_of("me"), [transaction_entry(decided)])

                broker.call(decide)
            broker.kill()
            broker.start()
            with TransactionalProducer(("127.0.0.1", broker.port)) as me:
                wait_until_loaded(me.client)
                state = "CompleteCommit" if is_commit else "CompleteAbort"
                wait_until(lambda: me.described().transaction_state == state, state)
                for partition in (0, 1):
                    expected = [(producer_id, 0)] if is_commit else []
                    assert committed(me.client, "t", partition) == expected
                    assert offset_of(me.client, "t", partition=partition) == 2

    def test_an_open_transaction_goes_on(self, tmp_path: Path) -> None:
        with Broker(tmp_path / "data", **PROPERTIES) as broker:
            broker.call(lambda running: running.node.manager.create_topic("t", 1, {}))
            with TransactionalProducer(("127.0.0.1", broker.port)) as before:
                before.init()
                before.write(("t", 0))
            broker.kill()
            broker.start()
            with TransactionalProducer(("127.0.0.1", broker.port)) as me:
                wait_until_loaded(me.client)
                me.producer_id, me.epoch, me.sequences = before.producer_id, before.epoch, before.sequences
                assert me.produce("t") == me.end() == NONE
                assert committed(me.client, "t") == [(me.producer_id, 0), (me.producer_id, 1)]
                assert producers(me.client, "t")[0].current_txn_start_offset == -1

    def test_the_topic_has_more_partitions(self, start_broker: StartBroker) -> None:
        """Ids belong to other partitions then, at once and after a start; what was open stays so, and is nowhere twice."""
        broker = start_broker(transaction_state_log_num_partitions=1)
        broker.create_topic("t")
        names = [f"one-{number}" for number in range(8)]
        made = {name: TransactionalProducer(broker.address, name) for name in names}
        for one in made.values():
            assert one.init() == one.add(("t", 0)) == NONE

        def enlarge() -> None:
            broker.node.manager.add_partitions(TRANSACTIONS_TOPIC, 4)

        broker.on_loop(enlarge)
        moved = made["one-0"]
        assert moved.end() == moved.add(("t", 0)) == NONE

        def described() -> list[object]:
            with broker.client() as client:
                return [describe(client, name) for name in names]

        before = described()
        for one in made.values():
            one.client.close()
        for _ in range(2):
            broker.stop()
            broker.start()
            with TransactionalProducer(broker.address, "another") as one:
                wait_until_loaded(one.client)
            assert described() == before
        broker.stop()
        kept: list[str] = []
        with LogManager(broker.data_dir, broker.clock) as manager:
            for key, log in manager.logs.items():
                if key.topic == TRANSACTIONS_TOPIC:
                    kept += read_transactions(read_batches(log, log.log_start_offset, log.log_end_offset))
        assert sorted(kept) == names
        broker.start()

    def test_the_topic_itself_is_deleted(self, start_broker: StartBroker) -> None:
        """All ids are gone; what was open can be ended by hand."""
        broker = start_broker(**PROPERTIES)
        broker.create_topic("t")
        with TransactionalProducer(broker.address) as me:
            me.init()
            me.write(("t", 0))
            broker.on_loop(lambda: topics_now.delete(broker.node, TRANSACTIONS_TOPIC))
            assert me.end() == me.init() == ErrorCode.NOT_COORDINATOR
            find_coordinator(me.client, "me")
            assert me.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert (me.init(), me.epoch) == (NONE, 0)
