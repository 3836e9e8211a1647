"""Produce: what is taken, what is refused and how, for each version. What is refused was asked of Kafka 3.9.1 as well."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import (
    FIRST_V2,
    LATEST,
    NOW_MS,
    Answer,
    answer,
    answers,
    message_set,
    patched,
    produce_request,
    some_records,
)
from tests.broker.raw import RawClient
from tests.examples import examples
from tidelog.broker.handling.produce_refusals import ADMIN_CLIENT_ID
from tidelog.broker.partitions.header_check import check_headers
from tidelog.clock import ManualClock
from tidelog.errors import CorruptBatchError, RecordValidationError
from tidelog.model import TopicPartition
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record, iter_records
from tidelog.times import format_time
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import ProduceResponse

VERSIONS = range(LATEST + 1)
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if magic == 2 or codec is not Codec.ZSTD]
BATCH = message_set(2)


def stored(broker: RunningBroker, topic: str = "t", partition: int = 0) -> list[Record]:
    def read() -> list[Record]:
        data = broker.node.manager.log(topic, partition).read(0, 10_000_000).data
        return [r for h in iter_headers(data) for r in iter_records(h, data[h.position : h.end_position])]

    return broker.on_loop(read)


def stored_bytes(broker: RunningBroker, topic: str = "t", partition: int = 0) -> bytes:
    return broker.on_loop(lambda: bytes(broker.node.manager.log(topic, partition).read(0, 10_000_000).data))


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("produce") / "data")
    yield broker
    broker.stop()


@pytest.fixture
def broker(shared_broker: RunningBroker) -> Iterator[RunningBroker]:
    """One for all of this file: each test finds it without topics."""
    yield shared_broker

    def delete_topics() -> None:
        for name in shared_broker.node.manager.topics():
            shared_broker.node.manager.delete_topic(name)

    shared_broker.on_loop(delete_topics)


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    broker.create_topic("t", 2)
    return "t"


class TestTaken:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_each_version(self, broker: RunningBroker, client: RawClient, topic: str, version: int) -> None:
        """The offsets, and what else the version says; what was sent is in the log, and is to be read."""
        records = some_records()
        magic = 2 if version >= FIRST_V2 else min(version, 2) // 2
        for base in (0, 3):
            got = answer(client.ask(produce_request(message_set(magic, records=records)), version))
            assert got == Answer(ErrorCode.NONE, base, -1, 0 if version >= 5 else -1)
        times = [record.timestamp if magic else -1 for record in records] * 2
        assert [(r.offset, r.timestamp, r.value) for r in stored(broker)] == [
            (i, times[i], records[i % 3].value) for i in range(6)
        ]
        log = broker.node.manager.log(topic, 0)
        assert broker.on_loop(lambda: (log.high_watermark, log.log_end_offset)) == (6, 6)

    @pytest.mark.parametrize(("magic", "codec"), FORMATS)
    @pytest.mark.parametrize("version", [0, 2])
    def test_old_versions_take_any_format(
        self, broker: RunningBroker, client: RawClient, topic: str, version: int, magic: int, codec: Codec
    ) -> None:
        """Before version 3 nobody asks; the log stores what its topic wants."""
        assert answer(client.ask(produce_request(message_set(magic, codec)), version)) == Answer(0, 0)
        (header,) = iter_headers(stored_bytes(broker))
        assert (header.magic, header.codec, header.leader_epoch) == (2, codec, 0)
        assert [record.value for record in stored(broker)] == [record.value for record in some_records()]

    def test_several_partitions(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        """Each has its own answer, in the request's order."""
        broker.create_topic("u", 1)
        request = produce_request([("t", 1, BATCH), ("t", 0, BATCH), ("u", 0, BATCH)])
        response = client.ask(request, LATEST)
        assert list(answers(response)) == [("t", 1), ("t", 0), ("u", 0)]
        assert set(answers(response).values()) == {Answer(0, 0, -1, 0)}

    def test_a_partition_twice(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        """The last records of it count."""
        first, last = message_set(2, records=some_records(1)), message_set(2, records=some_records(2))
        assert answers(client.ask(produce_request([("t", 0, first), ("t", 0, last)]), LATEST)) == {("t", 0): Answer(0, 0, -1, 0)}
        assert len(stored(broker)) == 2

    @pytest.mark.parametrize("data", [b"", BATCH[:40]])
    def test_no_batch_is_none(self, client: RawClient, topic: str, data: bytes) -> None:
        """Before version 3, nothing is appended and nothing is wrong; later it is."""
        assert answer(client.ask(produce_request(data), 2)) == Answer(0)
        assert answer(client.ask(produce_request(data), 3)) == Answer(ErrorCode.INVALID_RECORD)

    def test_the_end_of_a_batch_is_left_out(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        assert answer(client.ask(produce_request(BATCH + BATCH[:30]), LATEST)) == Answer(0, 0, -1, 0)
        assert len(stored_bytes(broker)) == len(BATCH)

    def test_append_time(self, start_broker: StartBroker) -> None:
        """From version 2 on the answer says it."""
        broker = start_broker(clock=ManualClock(NOW_MS))
        broker.create_topic("t", message_timestamp_type="LogAppendTime")
        with broker.client() as client:
            got = [
                answer(client.ask(produce_request(message_set(m)), v)) for m, v in ((0, 0), (0, 1), (1, 2), (2, 3), (2, LATEST))
            ]
        assert [one.log_append_time for one in got] == [-1, -1, NOW_MS, NOW_MS, NOW_MS]
        assert [one.base_offset for one in got] == [0, 3, 6, 9, 12]

    def test_log_start_offset(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        client.ask(produce_request(BATCH), LATEST)
        broker.on_loop(lambda: broker.node.manager.log("t", 0).delete_records(2))
        assert answer(client.ask(produce_request(BATCH), LATEST)) == Answer(0, 3, -1, 2)

    def test_who_waits_is_woken(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        woken: list[TopicPartition] = []
        broker.on_loop(lambda: broker.node.delayed_fetches.watch([TopicPartition("t", 0), TopicPartition("t", 1)], woken.append))
        client.ask(produce_request([("t", 1, BATCH), ("u", 0, BATCH)]), LATEST)
        assert broker.on_loop(lambda: list(woken)) == [("t", 1)]

    def test_what_was_done_is_counted(self, start_broker: StartBroker) -> None:
        """Latency by the youngest record's time; batches that were unpacked, packed, converted."""
        broker = start_broker(clock=ManualClock(NOW_MS + 1000))
        broker.create_topic("t")
        broker.create_topic("z", compression_type="zstd")
        with broker.client() as client:
            for name, data, version in (
                ("t", BATCH, LATEST),
                ("t", message_set(2, Codec.LZ4), LATEST),
                ("z", BATCH, LATEST),
                ("t", message_set(1, Codec.GZIP), 2),
            ):
                client.ask(produce_request(data, topic=name), version)
        counters, topics = broker.node.metrics.counters, broker.node.metrics.topics
        assert (counters.decompressed_batches, counters.recompressed_batches, counters.up_converted_batches) == (2, 2, 1)
        assert (topics["t"].appends, topics["t"].records, topics["t"].append_latency_ms.total) == (3, 9, 3 * 998)

    def test_latency_of_append_times(self, start_broker: StartBroker) -> None:
        """In a topic with LogAppendTime the batch's header still told when its youngest record was made (KIP-33, KIP-32)."""
        broker = start_broker(clock=ManualClock(NOW_MS + 1000))
        broker.create_topic("t", message_timestamp_type="LogAppendTime")
        with broker.client() as client:
            for magic, codec in ((2, Codec.NONE), (2, Codec.ZSTD), (1, Codec.NONE), (0, Codec.GZIP)):
                client.ask(produce_request(message_set(magic, codec)), 9 if magic == 2 else magic + 1)
        latency = broker.node.metrics.topics["t"].append_latency_ms
        assert (latency.count, latency.total) == (2, 2 * 998)


class TestAcks:
    def test_none_is_answered_by_nothing(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        client.send(produce_request(BATCH, acks=0), LATEST)
        client.forget()
        assert answer(client.ask(produce_request(BATCH, acks=1), LATEST)).base_offset == 3

    @pytest.mark.parametrize(
        "request_of",
        [
            lambda: produce_request(BATCH, topic="unknown", acks=0),
            lambda: produce_request(patched(BATCH, 70, b"x", with_crc=False), acks=0),
            lambda: produce_request(patched(BATCH, 16, b"\x07"), acks=0),
            lambda: produce_request(patched(BATCH, 22, b"\x10"), acks=0),
            lambda: produce_request([("t", 1, BATCH), ("t", 9, BATCH)], acks=0),
        ],
    )
    def test_none_and_an_error_closes(self, client: RawClient, topic: str, request_of: Callable[[], object]) -> None:
        """It is all that the producer can notice."""
        client.send(request_of(), LATEST)  # type: ignore[arg-type]
        assert client.closed()

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_others_do_not_exist(self, broker: RunningBroker, client: RawClient, topic: str, acks: int) -> None:
        """An unknown partition and what the version does not allow come first."""
        request = produce_request([("t", 0, BATCH), ("t", 1, message_set(1)), ("u", 0, BATCH)], acks=acks)
        assert {key: one.error_code for key, one in answers(client.ask(request, LATEST)).items()} == {
            ("t", 0): ErrorCode.INVALID_REQUIRED_ACKS,
            ("t", 1): ErrorCode.INVALID_RECORD,
            ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert stored(broker) == []


REFUSED = {
    "checksum": (patched(BATCH, 70, b"x", with_crc=False), ErrorCode.CORRUPT_MESSAGE, -1),
    "base offset": (patched(BATCH, 0, struct.pack(">q", 5)), ErrorCode.INVALID_RECORD, 0),
    "negative base offset": (patched(BATCH, 0, struct.pack(">q", -5)), ErrorCode.INVALID_RECORD, 0),
    "count": (patched(BATCH, 57, struct.pack(">i", 2)), ErrorCode.INVALID_RECORD, 0),
    "no records": (patched(BATCH, 57, struct.pack(">i", 0)), ErrorCode.INVALID_RECORD, 0),
    "an end before the beginning": (patched(BATCH, 23, struct.pack(">i", -1)), ErrorCode.INVALID_RECORD, 0),
    "a codec that there is not": (patched(BATCH, 22, b"\x05"), ErrorCode.UNKNOWN_SERVER_ERROR, 0),
    "control batch": (patched(BATCH, 22, b"\x20"), ErrorCode.INVALID_RECORD, 0),
    "damaged gzip": (patched(message_set(2, Codec.GZIP), 64, b"\xde\xad\xbe\xef"), ErrorCode.UNKNOWN_SERVER_ERROR, 0),
    "damaged zstd": (patched(message_set(2, Codec.ZSTD), 64, b"\xde\xad\xbe\xef"), ErrorCode.UNKNOWN_SERVER_ERROR, 0),
    "a producer without a sequence": (patched(BATCH, 43, struct.pack(">qhi", 5, 0, -1)), ErrorCode.INVALID_RECORD, 0),
    "two batches": (BATCH + BATCH, ErrorCode.INVALID_RECORD, -1),
    "format v1": (message_set(1), ErrorCode.INVALID_RECORD, -1),
    "damaged second batch": (BATCH + patched(BATCH, 16, b"\x07"), ErrorCode.CORRUPT_MESSAGE, -1),
}


class TestRefused:
    @pytest.mark.parametrize("case", REFUSED)
    def test_by_the_log(self, broker: RunningBroker, client: RawClient, topic: str, case: str) -> None:
        """Nothing is appended; the other partition's records are."""
        data, code, log_start_offset = REFUSED[case]
        response = client.ask(produce_request([("t", 0, data), ("t", 1, BATCH)]), LATEST)
        assert answers(response) == {("t", 0): Answer(code, -1, -1, log_start_offset), ("t", 1): Answer(0, 0, -1, 0)}
        assert (stored(broker), len(stored(broker, "t", 1))) == ([], 3)

    @pytest.mark.parametrize("version", [2, 3, LATEST])
    @pytest.mark.parametrize("at", [(16, b"\x07"), (16, b"\xff"), (8, struct.pack(">i", 5)), (8, struct.pack(">i", -5))])
    def test_records_that_are_none_spoil_the_request(
        self, broker: RunningBroker, client: RawClient, topic: str, version: int, at: tuple[int, bytes]
    ) -> None:
        request = produce_request([("t", 1, BATCH), ("u", 0, BATCH), ("t", 0, patched(BATCH, *at))])
        response = client.ask(request, version)
        assert {one.error_code for one in answers(response).values()} == {ErrorCode.CORRUPT_MESSAGE}
        assert stored(broker, "t", 1) == []
        told = response.responses[0].partition_responses[0].error_message
        assert bool(told) == (version >= 8)

    def test_unknown_partitions(self, client: RawClient, topic: str) -> None:
        names = [("unknown", 0), ("t", 2), ("t", -1), ("", 0), ("../t", 0)]
        response = client.ask(produce_request([(name, index, BATCH) for name, index in names]), LATEST)
        assert answers(response) == dict.fromkeys(names, Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    @pytest.mark.parametrize("version", [3, 6, 7, LATEST])
    def test_zstd_needs_version_7(self, client: RawClient, topic: str, version: int) -> None:
        code = answer(client.ask(produce_request(message_set(2, Codec.ZSTD)), version)).error_code
        assert code == (0 if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    @pytest.mark.parametrize("version", [3, 7, 8, LATEST])
    def test_timestamps_out_of_bounds(self, start_broker: StartBroker, version: int) -> None:
        """INVALID_TIMESTAMP, from version 8 on with the records at fault."""
        broker = start_broker(clock=ManualClock(NOW_MS))
        broker.create_topic("t", message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
        times = (NOW_MS, NOW_MS - 1001, NOW_MS + 1000, NOW_MS + 1001, -1)
        batch = build_batch_v2([Record(i, at, 0, b"k", b"v") for i, at in enumerate(times)])
        with broker.client() as client:
            response = client.ask(produce_request(bytes(batch)), version)
        assert answer(response) == Answer(ErrorCode.INVALID_TIMESTAMP, -1, -1, 0 if version >= 5 else -1)
        (told,) = response.responses[0].partition_responses
        assert [error.batch_index for error in told.record_errors] == ([1, 3] if version >= 8 else [])
        assert all(format_time(times[e.batch_index]) in (e.batch_index_error_message or "") for e in told.record_errors)
        assert (told.error_message is not None) == (version >= 8)
        assert stored(broker) == []

    @pytest.mark.parametrize("version", [2, LATEST])
    def test_no_key_in_a_compacted_topic(self, broker: RunningBroker, client: RawClient, version: int) -> None:
        broker.create_topic("c", cleanup_policy="compact")
        records = [Record(0, NOW_MS, 0, b"k", b"v"), Record(1, NOW_MS, 0, None, b"v")]
        data = message_set(2 if version >= FIRST_V2 else 1, records=records)
        response = client.ask(produce_request(data, topic="c"), version)
        assert answer(response).error_code == ErrorCode.INVALID_RECORD
        if version == LATEST:
            assert [e.batch_index for e in response.responses[0].partition_responses[0].record_errors] == [1]

    def test_sizes(self, broker: RunningBroker, client: RawClient) -> None:
        broker.create_topic("small", max_message_bytes=200)
        broker.create_topic("segment", segment_bytes=200)
        large = message_set(2, records=some_records(3, value=b"x" * 100))
        assert answer(client.ask(produce_request(large, topic="small"), LATEST)) == Answer(ErrorCode.MESSAGE_TOO_LARGE)
        assert answer(client.ask(produce_request(large, topic="segment"), LATEST)) == Answer(ErrorCode.RECORD_LIST_TOO_LARGE)

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_a_bomb(self, broker: RunningBroker, client: RawClient, codec: Codec) -> None:
        """A batch grows to tidelog.log.decompressed.max.bytes and no further; more is MESSAGE_TOO_LARGE: a producer splits it."""
        broker.create_topic("b", tidelog_log_decompressed_max_bytes=1_000_000)
        for size, code in ((900_000, 0), (1_000_001, ErrorCode.MESSAGE_TOO_LARGE)):
            batch = build_batch_v2([Record(0, NOW_MS, 0, None, bytes(size))], codec=codec)
            assert len(batch) < 100_000
            assert answer(client.ask(produce_request(bytes(batch), topic="b"), LATEST)).error_code == code
        wrapped = message_set(1, Codec.GZIP, [Record(0, NOW_MS, 0, None, bytes(250_000))])
        assert answer(client.ask(produce_request(wrapped, topic="b"), 2)).error_code == ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
    def test_internal_topics(self, broker: RunningBroker, client: RawClient, name: str) -> None:
        broker.create_topic(name)
        assert answer(client.ask(produce_request(BATCH, topic=name), LATEST)) == Answer(ErrorCode.INVALID_TOPIC_EXCEPTION)
        with broker.client(client_id=ADMIN_CLIENT_ID) as admin:
            assert answer(admin.ask(produce_request(BATCH, topic=name), LATEST)).error_code == 0

    def test_no_records_at_all(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        """Null is what the protocol allows and nobody sends; Kafka never answers it."""
        response = client.ask(produce_request([("t", 0, None), ("t", 1, BATCH)]), LATEST)
        assert {one.error_code for one in answers(response).values()} == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert stored(broker, "t", 1) == []

    def test_an_offline_log(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        """The others go on."""
        broker.on_loop(lambda: broker.node.manager.log("t", 0).go_offline("a test", OSError("broken")))
        response = client.ask(produce_request([("t", 0, BATCH), ("t", 1, BATCH)]), LATEST)
        assert answers(response) == {("t", 0): Answer(ErrorCode.KAFKA_STORAGE_ERROR), ("t", 1): Answer(0, 0, -1, 0)}

    def test_an_error_that_nobody_foresaw(
        self,
        broker: RunningBroker,
        client: RawClient,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Is told as UNKNOWN_SERVER_ERROR, for its partition only, and logged."""
        log = broker.node.manager.log("t", 0)

        def fails(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(log, "append_as_leader", fails)
        response = client.ask(produce_request([("t", 0, BATCH), ("t", 1, BATCH)]), LATEST)
        assert answers(response) == {
            ("t", 0): Answer(ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, 0),
            ("t", 1): Answer(0, 0, -1, 0),
        }
        assert "ZeroDivisionError" in caplog.text

    def test_formats_that_know_no_producers(self, broker: RunningBroker, client: RawClient) -> None:
        broker.create_topic("old", message_format_version="0.10.2")
        batch = bytes(build_batch_v2(some_records(), producer=Producer(5, 0, 0)))
        code = answer(client.ask(produce_request(batch, topic="old"), LATEST)).error_code
        assert code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class TestTransactions:
    """While there is no coordinator; with one: `tests.broker.transactions`."""

    BATCH = bytes(build_batch_v2(some_records(), producer=Producer(5, 0, 0), is_transactional=True))

    def test_without_an_id(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        """The whole request is refused."""
        response = client.ask(produce_request([("t", 0, self.BATCH), ("t", 1, BATCH)]), LATEST)
        assert {one.error_code for one in answers(response).values()} == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert stored(broker, "t", 1) == []

    def test_an_unknown_transaction(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        request = produce_request([("t", 0, self.BATCH), ("t", 1, BATCH)], transactional_id="me")
        response = client.ask(request, LATEST)
        assert answers(response) == {("t", 0): Answer(ErrorCode.NOT_ENOUGH_REPLICAS), ("t", 1): Answer(0, 0, -1, 0)}
        assert response.responses[0].partition_responses[0].error_message
        assert stored(broker) == []

    def test_unverified(self, start_broker: StartBroker) -> None:
        broker = start_broker(transaction_partition_verification_enable="false")
        broker.create_topic("t")
        with broker.client() as client:
            assert answer(client.ask(produce_request(self.BATCH, transactional_id="me"), LATEST)) == Answer(0, 0, -1, 0)
        log = broker.node.manager.log("t", 0)
        assert broker.on_loop(lambda: (log.last_stable_offset, log.high_watermark)) == (0, 3)


class TestBytes:
    def test_nothing_of_a_frame_is_copied_or_kept(self, broker: RunningBroker, client: RawClient, topic: str) -> None:
        """Frames share a buffer: what was stored is not what a later frame wrote over it."""
        batches = [message_set(2, records=some_records(1, value=b"%d" % i * 200)) for i in range(50)]
        for batch in batches:
            client.send(produce_request(batch, acks=1), LATEST)
        for i in range(50):
            assert answer(client.receive()).base_offset == i
        data = stored_bytes(broker)
        values = [r.value for h in iter_headers(data) for r in iter_records(h, data[h.position : h.end_position])]
        assert values == [b"%d" % i * 200 + b" 0" for i in range(50)]

    @examples(60)
    @given(data=st.data())
    def test_damaged_records_are_refused_or_sound(self, data: st.DataObject) -> None:
        """Whatever bytes change: `check_headers` says a Kafka error code, or leaves it to the log."""
        magic, codec = data.draw(st.sampled_from([(0, Codec.NONE), (1, Codec.GZIP), (2, Codec.NONE), (2, Codec.LZ4)]))
        records = bytearray(message_set(magic, codec))
        for _ in range(data.draw(st.integers(0, 3))):
            records[data.draw(st.integers(0, min(len(records) - 1, 70)))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(records)))
        version = data.draw(st.sampled_from(VERSIONS))
        try:
            look = check_headers(records[:cut], version)
        except CorruptBatchError:
            return
        assert look.error_code in (0, 2, 76, 87)


def test_record_errors_are_the_engines(broker: RunningBroker, client: RawClient) -> None:
    """Message and indexes of the answer are those of the error that the log raises."""
    broker.create_topic("c", cleanup_policy="compact")
    data = message_set(2, records=[Record(i, NOW_MS, 0, None, b"v") for i in range(3)])
    response: ProduceResponse = client.ask(produce_request(data, topic="c"), LATEST)
    with pytest.raises(RecordValidationError) as caught:
        broker.on_loop(lambda: broker.node.manager.log("c", 0).append_as_leader(bytearray(data), 0))
    (told,) = response.responses[0].partition_responses
    assert told.error_message == caught.value.message
    expected = [(one.batch_index, one.message) for one in caught.value.record_errors]
    assert [(one.batch_index, one.batch_index_error_message) for one in told.record_errors] == expected
