"""Batches appended with several requests in flight: once and in order, whatever a broker or the network does; transactions."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.client.scripted import CLOSE, VERSIONS, ScriptedBroker, metadata
from tests.client.unreliable import Unreliable
from tests.examples import examples
from tidelog.client import transactions_supported
from tidelog.client.client import Client
from tidelog.client.connections import failures
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.produce.batch_appender import Appended, BatchAppender
from tidelog.client.produce.transaction_coordinator import TransactionCoordinator
from tidelog.errors import (
    BrokerError,
    BrokerUnreachableError,
    InvalidArgumentError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from tidelog.model import TopicPartition
from tidelog.records.batch import check_crc, read_header
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record, iter_records
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

KEYS = [TopicPartition("t", number) for number in range(3)]


def batch(*values: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch of records that count."""
    return build_batch_v2([Record(i, 1_000 + value, 0, None, b"%d" % value) for i, value in enumerate(values)], codec=codec)


@dataclass
class ModelPartition:
    """A log, and what a broker remembers of one producer."""

    values: list[bytes] = field(default_factory=list)
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """(base sequence, records, base offset)"""


class ModelBroker:
    """Two brokers that take batches by the rules of sequences; they go wrong as `faults` say, one a partition of a request."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        self.partitions: dict[int, ModelPartition] = {key.partition: ModelPartition() for key in KEYS}
        self.leaders = dict.fromkeys(self.partitions, 1)
        self.lock = threading.Lock()
        self.brokers = {node: ScriptedBroker(partial(self.answer, node)) for node in (1, 2)}
        self.address = self.brokers[1].address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)

    def answer(self, node: int, request: Any, version: int) -> Any:
        with self.lock:
            if isinstance(request, MetadataRequest):
                return metadata(self.brokers, self.leaders)
            if isinstance(request, InitProducerIdRequest):
                return InitProducerIdResponse(producer_id=7, producer_epoch=0)
            return self.produce(node, request) if isinstance(request, ProduceRequest) else None

    def produce(self, node: int, request: ProduceRequest) -> Any:
        answers = []
        is_closed = False
        for part in request.topic_data[0].partition_data:
            fault = self.faults.pop() if self.faults else ""
            if fault == "close before":
                return CLOSE
            code = offset = 0
            if fault == "moves":
                self.leaders[part.index] = 3 - self.leaders[part.index]
            if fault == "not now" or node != self.leaders[part.index]:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                code, offset = self.append(self.partitions[part.index], bytes(part.records))
                if fault == "appended, not replicated" and not code:
                    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            is_closed = is_closed or fault == "close after"
            answers.append(PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset))
        if is_closed:
            return CLOSE
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])

    def append(self, partition: ModelPartition, data: bytes) -> tuple[int, int]:
        header = read_header(data)
        check_crc(header, data)
        for sequence, count, offset in partition.recent:
            if (sequence, count) == (header.base_sequence, header.record_count):
                return ErrorCode.NONE, offset
        if partition.recent:
            sequence, count, _ = partition.recent[-1]
            if header.base_sequence != sequence + count:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(partition.values)
        partition.values.extend(record.value or b"" for record in iter_records(header, data))
        partition.recent.append((header.base_sequence, header.record_count, offset))
        return ErrorCode.NONE, offset


@pytest.fixture(scope="module", autouse=True)
def short_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(failures, "LAST_PAUSE_MS", 2)
        yield


@contextlib.contextmanager
def appending(model: ModelBroker, timeout_ms: int = 60_000, max_in_flight: int = 5) -> Iterator[BatchAppender]:
    with (
        model,
        tidelog.connect(model.address, timeout_ms=timeout_ms) as client,
        BatchAppender(client.cluster, max_in_flight=max_in_flight) as appender,
    ):
        appender.init()
        yield appender


FAULTS = st.lists(
    st.sampled_from(["", "", "", "not now", "moves", "appended, not replicated", "close before", "close after"]), max_size=25
)
APPENDS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 3), st.booleans()), min_size=1, max_size=30)


@examples(60)
@given(faults=FAULTS, appends=APPENDS, in_flight=st.integers(1, 5))
def test_each_batch_is_there_once_and_in_order(
    faults: list[str], appends: list[tuple[TopicPartition, int, bool]], in_flight: int
) -> None:
    model = ModelBroker(list(faults))
    wanted: dict[int, list[bytes]] = {key.partition: [] for key in KEYS}
    with appending(model, max_in_flight=in_flight) as appender:
        told: list[Appended] = []
        sent = []
        for number, (key, count, is_flushed) in enumerate(appends):
            expected = wanted[key.partition]
            values = range(100 * number, 100 * number + count)
            sent.append(Appended(key, len(expected), len(expected) + count - 1, count, -1, number))
            expected.extend(b"%d" % value for value in values)
            appender.append(key, batch(*values), tag=number)
            if is_flushed:
                told += appender.flush()
        told += appender.flush()
    assert told == sent
    assert {number: partition.values for number, partition in model.partitions.items()} == wanted


def test_many_are_in_flight_before_the_first_is_answered() -> None:
    model = ModelBroker([])
    with appending(model) as appender:
        for number in range(4):
            appender.append(KEYS[0], batch(number))
            # Nothing is behind the first one until it is answered; then nobody waits for an answer.
            if number == 0:
                appender.flush()
        assert sum(len(lane.in_flight) for lane in appender._pipeline._lanes.values()) == 3
        assert [one.base_offset for one in appender.flush()] == [1, 2, 3]


def test_a_producer_that_the_broker_lost_records_of() -> None:
    model = ModelBroker([])
    with appending(model) as appender:
        appender.append(KEYS[0], batch(1))
        appender.flush()
        model.partitions[0].recent[-1] = (5, 1, 0)
        appender.append(KEYS[0], batch(2))
        with pytest.raises(OutOfOrderSequenceError):
            appender.flush()
        with pytest.raises(OutOfOrderSequenceError):  # what comes after is reported the same
            appender.append(KEYS[0], batch(3))
        appender.abort()
        with pytest.raises(InvalidArgumentError, match="init"):
            appender.append(KEYS[0], batch(3))


def test_time_is_up() -> None:
    model = ModelBroker(["not now"] * 1_000)
    with appending(model) as appender:
        appender.append(KEYS[0], batch(1))
        appender._pipeline._timer._timeout_ms = 100
        with pytest.raises(BrokerError, match="append to t-0"):
            appender.flush()


def test_brokers_without_transactions() -> None:
    # Those versions know none of EndTxn.
    with (
        ScriptedBroker(lambda request, version: None, VERSIONS) as broker,
        tidelog.connect(broker.address) as client,
    ):
        assert not transactions_supported(client.cluster)


def test_a_commit_is_visible_once_its_markers_are_written() -> None:
    """As Kafka's coordinator: it answers before it writes them, and says so when it is asked again."""
    codes = [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]

    def answer(request: Any, version: int) -> Any:
        match request:
            case MetadataRequest():
                return metadata({1: broker}, {0: 1})
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=7, producer_epoch=0)
            case AddPartitionsToTxnRequest():
                added = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0)
                topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[added])
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
            case ProduceRequest():
                there = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
                return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[there])])
            case EndTxnRequest():
                assert request.committed
                return EndTxnResponse(error_code=codes.pop(0))

    with (
        ScriptedBroker(answer, VERSIONS | {AddPartitionsToTxnRequest: 3, EndTxnRequest: 3}) as broker,
        tidelog.connect(broker.address) as client,
        BatchAppender(client.cluster, transactional_id="one") as appender,
    ):
        appender.init()
        appender.wait_until_visible()  # Nothing is to be waited for.
        appender.begin()
        appender.append(KEYS[0], batch(1))
        appender.commit()
        assert len(codes) == 3
        appender.wait_until_visible()
        assert codes == []
        appender.wait_until_visible()


# --- Tidelog's broker ---


@pytest.fixture
def appender(client: Client) -> Iterator[BatchAppender]:
    with BatchAppender(client.cluster, transactional_id="one") as made:
        made.init()
        yield made


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).split("[")[0]
    client.cluster.topic(name, create=True)
    return name


def committed(client: Client, topic: str) -> list[int]:
    """Return the values that readers of committed records see, in order."""
    return sorted(int(record.value or b"") for record in client.read(topic, isolation="read_committed"))


def test_transactions(client: Client, appender: BatchAppender, topic: str) -> None:
    assert transactions_supported(client.cluster)
    keys = [TopicPartition(topic, number) for number in range(3)]
    appender.begin()
    for number in range(6):
        appender.append(keys[number % 2], batch(number, codec=Codec(number % 5)), tag=number)
    done = appender.flush()
    assert [(one.key, one.base_offset, one.last_offset, one.tag) for one in done] == [
        (keys[number % 2], number // 2, number // 2, number) for number in range(6)
    ]
    assert committed(client, topic) == []
    appender.send_offsets("g", {keys[2]: (42, "what it says")})
    assert committed_offsets(client.cluster, "g", keys, require_stable=False) == {}
    appender.commit()
    assert committed(client, topic) == list(range(6))
    assert committed_offsets(client.cluster, "g", keys) == {keys[2]: (42, "what it says")}
    assert committed_offsets(client.cluster, "g", None) == {keys[2]: (42, "what it says")}
    assert committed_offsets(client.cluster, "g", []) == committed_offsets(client.cluster, "another", keys) == {}

    appender.begin()
    appender.append(keys[0], batch(100))
    appender.send_offsets("g", {keys[2]: (43, "")})
    appender.abort()
    appender.begin()
    appender.commit()  # an empty one: nobody hears of it
    appender.begin()
    appender.append(keys[0], batch(6))
    appender.commit()
    assert committed(client, topic) == list(range(7))
    assert committed_offsets(client.cluster, "g", keys) == {keys[2]: (42, "what it says")}


def test_unstable_offsets_are_waited_for(broker: tidelog.Broker, appender: BatchAppender, topic: str) -> None:
    key = TopicPartition(topic, 0)
    appender.begin()
    appender.send_offsets("unstable", {key: (1, "")})
    with tidelog.connect(broker.bootstrap_servers) as client:
        assert committed_offsets(client.cluster, "other", [key]) == {}
        client.cluster.timeout_ms = 50  # The connection, which is there, waits for as long as before.
        with pytest.raises(BrokerError, match="unstable") as raised:
            committed_offsets(client.cluster, "unstable", [key])
        assert raised.value.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        appender.commit()
        assert committed_offsets(client.cluster, "unstable", [key]) == {key: (1, "")}


def test_fenced(client: Client, appender: BatchAppender, topic: str) -> None:
    key = TopicPartition(topic, 0)
    appender.begin()
    appender.append(key, batch(1))
    appender.flush()
    with BatchAppender(client.cluster, transactional_id="one") as successor:
        successor.init()  # ends what was left open
        assert successor.producer.producer_id == appender.producer.producer_id
        appender.append(key, batch(2))
        with pytest.raises(ProducerFencedError, match="'one' is fenced"):
            appender.flush()
        with pytest.raises(ProducerFencedError):
            appender.commit()
        appender.abort()  # is not ours to end
        with pytest.raises(ProducerFencedError):
            appender.begin()
        successor.begin()
        successor.append(key, batch(3))
        successor.commit()
        assert committed(client, topic) == [3]
        with pytest.raises(ProducerFencedError):
            appender.begin()
        appender.init()
        successor.begin()
        successor.append(key, batch(4))
        with pytest.raises(ProducerFencedError):
            successor.commit()


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_refused_batch_leaves_a_transaction_to_be_aborted(client: Client, appender: BatchAppender, is_sent: bool) -> None:
    topic = f"refused-{is_sent}"
    client.cluster.topic(topic, create=True)
    key = TopicPartition(topic, 0)
    epoch = appender.producer.producer_epoch
    appender.begin()
    appender.append(key, batch(1))
    if is_sent:
        appender.flush()
    appender.append(key, build_batch_v2([Record(0, 1, 0, None, bytes(2 << 20))]))
    with pytest.raises(RecordTooLargeError):
        appender.commit()
    appender.abort()
    assert appender.producer.producer_epoch == epoch + 1  # whatever still wanders about is refused
    appender.begin()
    appender.append(key, batch(3))
    appender.commit()
    assert committed(client, topic) == [3]


@pytest.mark.parametrize("has_arrived", [False, True])
def test_a_commit_whose_answer_is_lost_for_good(
    client: Client, appender: BatchAppender, monkeypatch: pytest.MonkeyPatch, has_arrived: bool
) -> None:
    """An abort leaves a commit that was decided; the group's offset says which way it went."""
    topic = f"unanswered-{has_arrived}"
    client.cluster.topic(topic, create=True)
    key = TopicPartition(topic, 0)
    end = TransactionCoordinator.end

    def unanswered(coordinator: TransactionCoordinator, producer: Producer, *, is_commit: bool) -> None:
        monkeypatch.setattr(TransactionCoordinator, "end", end)
        if has_arrived:
            end(coordinator, producer, is_commit=is_commit)
        raise BrokerUnreachableError("by a test")

    monkeypatch.setattr(TransactionCoordinator, "end", unanswered)
    appender.begin()
    appender.append(key, batch(1))
    appender.send_offsets(topic, {key: (1, "")})
    with pytest.raises(BrokerUnreachableError):
        appender.commit()
    with pytest.raises(BrokerUnreachableError):
        appender.begin()
    appender.abort()
    assert committed_offsets(client.cluster, topic, [key]) == ({key: (1, "")} if has_arrived else {})
    appender.begin()
    appender.append(key, batch(2))
    appender.commit()
    assert committed(client, topic) == ([1, 2] if has_arrived else [2])


def test_an_unknown_topic(client: Client, appender: BatchAppender, topic: str) -> None:
    appender.begin()
    appender.append(TopicPartition("nowhere", 0), batch(1))
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        appender.flush()
    appender.abort()
    appender.begin()
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        appender.send_offsets("g", {TopicPartition("nowhere", 0): (1, "")})
    appender.abort()
    appender.begin()
    appender.append(TopicPartition(topic, 0), batch(1))
    appender.commit()
    assert committed(client, topic) == [1]


def test_what_cannot_be_appended(client: Client, appender: BatchAppender) -> None:
    key = TopicPartition("t", 0)
    with pytest.raises(InvalidArgumentError, match=r"no transaction is open for"):
        appender.append(key, batch(1))
    with pytest.raises(InvalidArgumentError, match=r"no transaction is open for"):
        appender.commit()
    appender.begin()
    with pytest.raises(InvalidArgumentError, match=r"a transaction is already open for"):
        appender.begin()
    with pytest.raises(InvalidArgumentError, match="one batch of v2"):
        appender.append(key, batch(1) + batch(2))
    with pytest.raises(InvalidArgumentError, match="gaps"):
        appender.append(key, build_batch_v2([Record(0, 1, 0, None, b""), Record(5, 1, 0, None, b"")]))
    with pytest.raises(InvalidArgumentError, match="1 to 5"):
        BatchAppender(client.cluster, max_in_flight=6)
    with pytest.raises(InvalidArgumentError, match="init"):
        BatchAppender(client.cluster).append(key, batch(1))
    with BatchAppender(client.cluster) as plain:
        plain.init()
        with pytest.raises(InvalidArgumentError, match="needs a transactional id"):
            plain.begin()
        assert plain.flush() == []
    with pytest.raises(BrokerError, match="start of transactional id"):
        BatchAppender(client.cluster, transactional_id="two", transaction_timeout_ms=2**31 - 1).init()


def test_old_formats_take_batches_without_producers(tmp_path: Any) -> None:
    with (
        tidelog.Broker(tmp_path / "data", log_message_format_version="0.10.2") as broker,
        tidelog.connect(broker.bootstrap_servers) as client,
    ):
        client.cluster.topic("old", create=True)
        key = TopicPartition("old", 0)
        with BatchAppender(client.cluster) as appender:
            appender.init()
            for number in range(5):
                appender.append(key, batch(2 * number, 2 * number + 1))
            assert [one.base_offset for one in appender.flush()] == [0, 2, 4, 6, 8]
            appender.append(key, batch(10))
            appender.flush()
        assert [int(record.value or b"") for record in client.read("old")] == list(range(11))
        with BatchAppender(client.cluster, transactional_id="x") as appender:
            appender.init()
            appender.begin()
            appender.append(key, batch(1))
            with pytest.raises(UnsupportedForMessageFormatError, match="no transactions"):
                appender.commit()


@pytest.mark.parametrize("seed", [1, 2])
def test_connections_that_are_lost(client: Client, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Copies a count into transactions, its position in the group: what is committed is each number once, in order."""
    rng = random.Random(seed)
    topic = f"lost-{seed}"
    client.cluster.topic(topic, create=True)
    keys = [TopicPartition(topic, number) for number in range(3)]
    position = 0
    with monkeypatch.context() as patched:
        unreliable = Unreliable(patched, rng, 0.05)
        with BatchAppender(client.cluster, transactional_id=topic) as appender:
            appender.init()
            while position < 300:
                appender.begin()
                end = position
                for _ in range(rng.randrange(1, 12)):
                    values = range(end, end + rng.randrange(1, 4))
                    appender.append(rng.choice(keys), batch(*values))
                    end = values.stop
                appender.send_offsets(topic, {keys[0]: (end, "")})
                if rng.random() < 0.2:
                    appender.abort()
                    continue
                appender.commit()
                position = end
        assert unreliable.losses > 10
    assert committed_offsets(client.cluster, topic, keys) == {keys[0]: (position, "")}
    assert committed(client, topic) == list(range(position))
    for key in keys:
        values = [
            int(record.value or b"") for record in client.read(topic, partitions=[key.partition], isolation="read_committed")
        ]
        assert values == sorted(values)
