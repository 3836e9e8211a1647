"""What transactions do to logs, over the wire: who may append, where read_committed ends, what it leaves out; markers by hand."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.broker import topics_now
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.loop_turns import LoopTurns
from tests.broker.produce_helpers import NOW_MS, answers, produce_request
from tests.broker.transactions.producers import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TransactionalProducer,
    committed,
    fetch,
    offset_of,
    producers,
    write_markers,
)
from tests.fields import check_fields
from tests.kafka.java import wait_until
from tidelog.broker.coordinators.transactions import completion
from tidelog.broker.requests.slices import SLICE_S
from tidelog.records.batch import iter_headers
from tidelog.records.control import ControlType
from tidelog.records.markers import end_txn_marker
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest

PROPERTIES: dict[str, Any] = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 3}
NONE = ErrorCode.NONE
OLD = 10
"""The last version of Produce that is not told of TRANSACTION_ABORTABLE."""

_names = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("transactions"), **PROPERTIES)
    yield broker
    broker.stop()


@pytest.fixture
def topic(shared: RunningBroker) -> str:
    name = f"t-{next(_names)}"
    # The clock is years ahead of the records' times.
    shared.create_topic(name, 2, segment_ms=2**62)
    return name


@pytest.fixture
def me(shared: RunningBroker) -> Iterator[TransactionalProducer]:
    with TransactionalProducer(shared.address, f"me-{next(_names)}") as producer:
        assert producer.init() == NONE
        yield producer


@pytest.fixture
def other(shared: RunningBroker) -> Iterator[TransactionalProducer]:
    with TransactionalProducer(shared.address, f"other-{next(_names)}") as producer:
        assert producer.init() == NONE
        yield producer


class TestVerification:
    """KIP-890: a log takes records of a transaction only if the coordinator knows that the transaction has the partition."""

    def test_a_partition_that_was_not_added(self, me: TransactionalProducer, topic: str) -> None:
        me.add((topic, 0))
        assert me.produce(topic, 1) == ErrorCode.TRANSACTION_ABORTABLE
        assert me.produce(topic, 1, version=OLD) == ErrorCode.INVALID_TXN_STATE
        assert me.produce(topic, 0) == NONE
        assert [offset_of(me.client, topic, isolation=READ_UNCOMMITTED, partition=one) for one in (0, 1)] == [1, 0]

    def test_behind_the_end(self, me: TransactionalProducer, topic: str) -> None:
        """A record that was on its way when the transaction ended is in no transaction; one that is there already is no news."""
        me.write((topic, 0))
        assert me.end() == NONE
        assert me.produce(topic, version=OLD) == ErrorCode.INVALID_TXN_STATE
        assert me.add((topic, 0)) == me.produce(topic) == NONE
        me.sequences[topic, 0] = 0
        assert me.produce(topic) == NONE
        assert offset_of(me.client, topic, isolation=READ_UNCOMMITTED) == 3

    def test_somebody_else(self, me: TransactionalProducer, topic: str) -> None:
        me.add((topic, 0))
        twin = me.twin()
        twin.producer_id += 1
        assert twin.produce(topic) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        twin.producer_id, twin.epoch = me.producer_id, 7
        assert twin.produce(topic) == ErrorCode.INVALID_PRODUCER_EPOCH
        twin.transactional_id = "nobody"
        assert twin.produce(topic) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        twin.transactional_id = ""
        assert twin.produce(topic) == ErrorCode.INVALID_REQUEST

    def test_an_open_transaction_is_not_asked_about_again(self, me: TransactionalProducer, topic: str) -> None:
        """Nor is its transactional id looked at, as in Kafka."""
        me.write((topic, 0))
        me.transactional_id = "nobody"
        assert me.produce(topic) == NONE

    def test_a_newer_epoch_is_asked_about(self, me: TransactionalProducer, topic: str) -> None:
        """Kafka does not, writes them, and then no marker fits."""
        me.add((topic, 0))
        assert me.produce(topic) == NONE
        newer = me.twin()
        newer.epoch += 1
        newer.sequences.clear()
        assert newer.produce(topic) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert me.end() == me.end() == NONE

    def test_the_first_records_come_first(self, start_broker: StartBroker) -> None:
        """They were refused while there was no coordinator: what came after them must not be taken for the first ones."""
        broker = start_broker(**PROPERTIES)
        broker.create_topic("t")
        with TransactionalProducer(broker.address, is_found=False) as me:
            me.producer_id, me.epoch = 5, 0
            assert me.produce("t") == ErrorCode.NOT_ENOUGH_REPLICAS
        with TransactionalProducer(broker.address) as me:
            assert me.init() == me.add(("t", 0)) == NONE
            first, second = me.batch(0), me.batch(1)
            log = broker.node.manager.log("t", 0)
            broker.on_loop(lambda: log.producer_state.maybe_create_verification(me.producer_id, 0, me.epoch))

            def code(batch: bytes) -> int:
                (one,) = answers(me.client.ask(produce_request(batch, transactional_id="me"), 11)).values()
                return one.error_code

            assert code(second) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert code(first) == code(second) == me.end() == NONE

    def test_two_producers_in_one_request(self, me: TransactionalProducer, other: TransactionalProducer, topic: str) -> None:
        request = produce_request([(topic, 0, me.batch(0)), (topic, 1, other.batch(0))], transactional_id=me.transactional_id)
        codes = {one.error_code for one in answers(me.client.ask(request, 11)).values()}
        assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    def test_several_partitions(self, me: TransactionalProducer, topic: str) -> None:
        """Each is answered for itself; acks of 0 are answered by nothing but the connection's end."""
        me.add((topic, 0))
        batches = [(topic, 0, me.batch(0)), (topic, 1, me.batch(0))]
        request = produce_request(batches, transactional_id=me.transactional_id)
        codes = {key: one.error_code for key, one in answers(me.client.ask(request, 11)).items()}
        assert codes == {(topic, 0): NONE, (topic, 1): ErrorCode.TRANSACTION_ABORTABLE}
        me.client.send(produce_request(batches[1:], transactional_id=me.transactional_id, acks=0), 11)
        assert me.client.closed()


class TestReadCommitted:
    def test_ends_before_the_first_open_transaction(
        self, me: TransactionalProducer, other: TransactionalProducer, topic: str
    ) -> None:
        def ends() -> tuple[int, int, int]:
            data = fetch(me.client, topic)
            assert data.last_stable_offset == offset_of(me.client, topic)
            assert data.high_watermark == offset_of(me.client, topic, isolation=READ_UNCOMMITTED)
            assert fetch(me.client, topic, isolation=READ_UNCOMMITTED).last_stable_offset == data.last_stable_offset
            headers = list(iter_headers(data.records or b""))
            return data.last_stable_offset, data.high_watermark, headers[-1].next_offset if headers else 0

        assert ends() == (0, 0, 0)
        me.write((topic, 0))
        assert ends() == (0, 1, 0)
        other.write((topic, 0))
        assert ends() == (0, 2, 0)
        me.end()
        assert ends() == (1, 3, 1)
        me.write((topic, 0))
        other.end(is_commit=False)
        assert ends() == (3, 5, 3)
        me.end()
        assert ends() == (6, 6, 6)
        assert committed(me.client, topic) == [(me.producer_id, 0), (me.producer_id, 3)]

    def test_aborted_transactions_are_named(self, me: TransactionalProducer, other: TransactionalProducer, topic: str) -> None:
        """Those with records in what is fetched; nobody else is passed them, nor before version 4."""
        me.write((topic, 0))
        other.write((topic, 0))
        me.end(is_commit=False)
        other.end(is_commit=False)
        me.write((topic, 0))
        me.end(is_commit=False)

        def aborted(offset: int) -> list[tuple[int, int]]:
            named = fetch(me.client, topic, offset).aborted_transactions
            return sorted((one.first_offset, one.producer_id) for one in named or ())

        first, second, third = (0, me.producer_id), (1, other.producer_id), (4, me.producer_id)
        assert aborted(0) == [first, second, third]
        assert aborted(3) == [second, third]
        assert aborted(4) == [third]
        assert fetch(me.client, topic, isolation=READ_UNCOMMITTED).aborted_transactions is None
        assert committed(me.client, topic) == []

    def test_who_waits_is_woken_by_the_end(self, me: TransactionalProducer, other: TransactionalProducer, topic: str) -> None:
        """And is passed the transaction that was aborted."""
        me.write((topic, 0))
        wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=20_000, min_bytes=1, isolation_level=1, topics=[FetchTopic(topic, partitions=[wanted])]
        )
        other.client.send(request, 12)
        me.end(is_commit=False)
        (data,) = other.client.receive().responses[0].partitions
        assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(me.producer_id, 0)]
        assert [header.next_offset for header in iter_headers(data.records)][-1] == data.last_stable_offset == 2

    def test_offsets_by_time(self, me: TransactionalProducer, topic: str) -> None:
        """A record that is not decided yet is not there yet. Markers count, as in Kafka, with the time of their writing."""
        me.add((topic, 0))
        me.produce(topic, at_ms=NOW_MS)
        me.end()
        me.add((topic, 0))
        me.produce(topic, at_ms=NOW_MS + 10)
        find = [NOW_MS, NOW_MS + 1]
        assert [offset_of(me.client, topic, at_ms) for at_ms in find] == [0, 1]
        assert [offset_of(me.client, topic, at_ms, READ_UNCOMMITTED) for at_ms in find] == [0, 1]
        marker = fetch(me.client, topic, 1).records
        assert marker is not None
        (header,) = iter_headers(marker)
        later = header.max_timestamp + 1
        me.produce(topic, at_ms=later)
        assert [offset_of(me.client, topic, later, isolation) for isolation in (READ_COMMITTED, READ_UNCOMMITTED)] == [-1, 3]
        me.end()
        assert offset_of(me.client, topic, later) == 3

    @pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
    def test_a_topic_with_a_codec_of_its_own(self, shared: RunningBroker, me: TransactionalProducer, codec: str) -> None:
        shared.create_topic(codec, compression_type=codec)
        me.write((codec, 0))
        assert me.end() == NONE
        assert committed(me.client, codec) == [(me.producer_id, 0)]
        assert producers(me.client, codec)[0].current_txn_start_offset == -1

    def test_append_times(self, shared: RunningBroker, me: TransactionalProducer) -> None:
        shared.create_topic("stamped", message_timestamp_type="LogAppendTime")
        me.write(("stamped", 0))
        assert me.end(is_commit=False) == NONE
        assert committed(me.client, "stamped") == []


class TestMarkers:
    def test_a_marker_is_kafkas(self, me: TransactionalProducer, topic: str) -> None:
        me.write((topic, 0))
        me.end(is_commit=False)
        data = fetch(me.client, topic, 1).records
        assert data is not None
        (header,) = iter_headers(data)
        check_fields(header, is_control=True, is_transactional=True, base_sequence=-1, size=78)
        assert (header.producer_id, header.producer_epoch) == (me.producer_id, me.epoch)
        marker = end_txn_marker(header, data)
        assert marker is not None
        assert (marker.type, marker.coordinator_epoch) == (ControlType.ABORT, 0)

    @pytest.mark.parametrize("version", [0, 1])
    def test_a_hanging_transaction(self, me: TransactionalProducer, topic: str, version: int) -> None:
        """KIP-664: found by what the log knows of its producers, ended by an administrator's marker."""
        me.write((topic, 0))
        (found,) = producers(me.client, topic)
        assert (found.producer_id, found.producer_epoch, found.last_sequence) == (me.producer_id, 0, 0)
        assert (found.current_txn_start_offset, found.coordinator_epoch, found.last_timestamp) == (0, -1, NOW_MS)
        assert write_markers(me.client, (me.producer_id, me.epoch), (topic, 0), version=version) == {(topic, 0): NONE}
        (found,) = producers(me.client, topic)
        assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 0)
        assert committed(me.client, topic) == []
        assert offset_of(me.client, topic) == 2

    def test_refusals(self, shared: RunningBroker, me: TransactionalProducer, topic: str) -> None:
        shared.create_topic("old", message_format_version="0.10.2")
        me.write((topic, 0))
        keys = [(topic, 0), (topic, 9), ("no-such", 0), ("old", 0)]
        assert write_markers(me.client, (me.producer_id, 5), *keys, coordinator_epoch=3) == {
            (topic, 0): NONE,
            (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("no-such", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("old", 0): ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        }
        older_producer = write_markers(me.client, (me.producer_id, 4), (topic, 0), coordinator_epoch=3)
        older_coordinator = write_markers(me.client, (me.producer_id, 5), (topic, 0), coordinator_epoch=2)
        assert set(older_producer.values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
        assert set(older_coordinator.values()) == {ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        for nobody in ((me.producer_id, -1), (-1, 0)):
            assert write_markers(me.client, nobody, (topic, 0)) == {(topic, 0): ErrorCode.UNKNOWN_SERVER_ERROR}
        assert me.client.ask(WriteTxnMarkersRequest([]), 1).markers == []

    def test_what_somebody_else_ended(self, me: TransactionalProducer, topic: str, caplog: pytest.LogCaptureFixture) -> None:
        """By a marker of a newer epoch of the producer's, or of a coordinator's: the transaction ends in the other partitions."""
        me.write((topic, 0), (topic, 1))
        write_markers(me.client, (me.producer_id, me.epoch), (topic, 0), coordinator_epoch=9)
        assert me.end() == NONE
        (found,) = producers(me.client, topic)
        assert (found.current_txn_start_offset, found.coordinator_epoch) == (-1, 9)
        me.write((topic, 0), (topic, 1))
        write_markers(me.client, (me.producer_id, me.epoch + 1), (topic, 0), coordinator_epoch=9)
        with caplog.at_level(logging.WARNING, "tidelog.broker"):
            assert me.end() == NONE
        assert me.described().transaction_state == "CompleteCommit"
        assert (committed(me.client, topic, 0), len(committed(me.client, topic, 1))) == ([], 2)
        assert "INVALID_PRODUCER_EPOCH" in caplog.text

    def test_a_partition_whose_disk_fails(self, shared: RunningBroker, me: TransactionalProducer) -> None:
        """The others are ended; this one is tried again for as long as it takes. Nothing begins before that."""
        shared.create_topic("sick", 2)
        me.write(("sick", 0), ("sick", 1))
        shared.on_loop(lambda: shared.node.manager.log("sick", 0).go_offline("a test", OSError(5, "no disk")))
        assert me.end() == NONE
        assert me.described().transaction_state == "PrepareCommit"
        assert len(committed(me.client, "sick", 1)) == 1
        assert me.add(("sick", 1)) == me.end() == me.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert me.produce("sick", 1, version=OLD) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert me.end(is_commit=False) == ErrorCode.INVALID_TXN_STATE
        shared.on_loop(lambda: topics_now.delete(shared.node, "sick"))
        wait_until(lambda: me.described().transaction_state == "CompleteCommit", "CompleteCommit")

    def test_many_partitions(self, shared: RunningBroker, me: TransactionalProducer, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are ended in slices."""
        monkeypatch.setattr(completion, "AT_ONCE", 4)
        shared.create_topic("many", 10)
        assert me.add(*(("many", one) for one in range(10))) == NONE
        assert me.end() == NONE
        wait_until(lambda: me.described().transaction_state == "CompleteCommit", "CompleteCommit")
        assert [offset_of(me.client, "many", partition=one) for one in range(10)] == [1] * 10

    def test_first_markers_of_many_partitions_keep_nobody_waiting(self, shared: RunningBroker, me: TransactionalProducer) -> None:
        """Each creates the files of its log: fewer have their turn at once."""
        shared.create_topic("first", 300)
        assert me.add(*(("first", one) for one in range(300))) == NONE
        gc.collect()  # What other tests left is none of this one's.
        with LoopTurns(shared) as turns:
            assert me.end() == NONE
            wait_until(lambda: me.described().transaction_state == "CompleteCommit", "CompleteCommit")
        assert turns.longest.seconds < 5 * SLICE_S, turns.turns[:3]

    def test_producers_that_nobody_has(self, shared: RunningBroker, me: TransactionalProducer, topic: str) -> None:
        request = DescribeProducersRequest([TopicRequest(topic, [0, 5]), TopicRequest("no-such", [0]), TopicRequest("a b", [0])])
        answer = me.client.ask(request, 0)
        codes = [[one.error_code for one in topic.partitions] for topic in answer.topics]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [[NONE, unknown], [unknown], [ErrorCode.INVALID_TOPIC_EXCEPTION]]


class TestOffsets:
    @pytest.mark.parametrize("is_commit", [True, False])
    def test_of_a_group(self, me: TransactionalProducer, topic: str, is_commit: bool) -> None:
        """They count with the transaction's end, or never."""
        group = f"g-{is_commit}"

        def commit() -> int:
            partitions = [TxnOffsetCommitRequestPartition(0, 5, -1, "")]
            request = TxnOffsetCommitRequest(
                me.transactional_id,
                group,
                me.producer_id,
                me.epoch,
                topics=[TxnOffsetCommitRequestTopic(topic, partitions=partitions)],
            )
            return int(me.client.ask(request, 3).topics[0].partitions[0].error_code)

        def fetched() -> tuple[int, int]:
            wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
            answer = me.client.ask(OffsetFetchRequest(groups=[wanted], require_stable=True), 8)
            one = answer.groups[0].topics[0].partitions[0]
            return one.error_code, one.committed_offset

        assert commit() == ErrorCode.INVALID_TXN_STATE
        assert me.add_offsets(group) == commit() == NONE
        assert fetched()[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert me.end(is_commit=is_commit) == NONE
        assert fetched() == (NONE, 5 if is_commit else -1)
