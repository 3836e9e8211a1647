"""`tidelog.connect` against a broker: offsets for times, records in with their times, records out again."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.broker.raw import RawClient
from tests.examples import examples
from tests.reader.golden import Case, cases
from tidelog import NewRecord, NotFound
from tidelog.client.client import Client
from tidelog.client.produce.appender import Produced
from tidelog.clock import ManualClock
from tidelog.errors import (
    BrokerUnreachableError,
    InvalidArgumentError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from tidelog.reader.time_search import find_offset
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

DAY = 1_373_414_400_000  # 2013-07-10
CODECS: tuple[Any, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

_numbers = itertools.count()


def new_topic(broker: tidelog.Broker, partitions: int = 1, **config: object) -> str:
    """Create a topic with these settings (Kafka's names, `_` for `.`)."""
    name = f"topic-{next(_numbers)}"
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
    with RawClient(("127.0.0.1", broker.port)) as raw:
        (created,) = raw.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics
    assert created.error_code == 0
    return name


class TestProduceAndRead:
    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_as_they_were(self, broker: tidelog.Broker, client: Client, codec: Any) -> None:
        topic = new_topic(broker)
        records = [
            NewRecord(b"value", b"key", DAY, [("a", b"1"), ("a", None), ("ü", b"")]),
            NewRecord(None, b"key", DAY - 1),
            NewRecord(b"", None, 0),
            NewRecord(b"x" * 100_000, b"", datetime(2013, 7, 10, tzinfo=UTC)),
        ]
        produced = client.produce_many(topic, records, compression=codec)
        assert produced == [Produced(topic, 0, i, time, 0) for i, time in enumerate((DAY, DAY - 1, 0, DAY))]
        read = list(client.read(topic))
        assert [(one.offset, one.timestamp, one.timestamp_type) for one in read] == [
            (place.offset, place.timestamp, 0) for place in produced
        ]
        assert [(one.key, one.value) for one in read] == [(b"key", b"value"), (b"key", None), (None, b""), (b"", b"x" * 100_000)]
        assert [one.headers for one in read] == [(("a", b"1"), ("a", None), ("ü", b"")), (), (), ()]

    def test_without_a_timestamp_it_is_the_clock_s(self, broker: tidelog.Broker) -> None:
        topic = new_topic(broker)
        with tidelog.connect(broker.bootstrap_servers, clock=ManualClock(DAY)) as client:
            assert client.produce(topic, b"now").timestamp == DAY
            assert client.produce(topic, b"then", timestamp="-1d").timestamp == DAY - 86_400_000
            assert [(record.value, record.timestamp) for record in client.read(topic, from_time="now")] == [(b"now", DAY)]

    def test_log_append_time_is_told(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker, message_timestamp_type="LogAppendTime")
        produced = client.produce(topic, b"value", timestamp=DAY)
        assert produced.timestamp_type == 1
        assert produced.timestamp > DAY
        (record,) = client.read(topic)
        assert (record.timestamp, record.timestamp_type) == (produced.timestamp, 1)

    def test_keys_decide_on_partitions_as_kafka_s_do(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker, 7)
        # positive(murmur2) mod 7: 21 and 1 are Kafka's own test values' keys (UtilsTest.testMurmur2)
        hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
        for key, murmur2 in hashes.items():
            assert client.produce(topic, b"", key).partition == (murmur2 & 0x7FFFFFFF) % 7

    def test_records_without_keys_take_turns_call_by_call(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker, 3)
        calls = [{produced.partition for produced in client.produce_many(topic, [NewRecord(b"")] * 4)} for _ in range(3)]
        assert [len(call) for call in calls] == [1, 1, 1]
        assert set.union(*calls) == {0, 1, 2}

    def test_batches_are_cut_and_stay_in_order(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker, 2)
        records = [NewRecord(b"%d" % i, timestamp=DAY + i, partition=i % 2) for i in range(1_000)]
        produced = client.produce_many(topic, records, batch_bytes=1_000)
        assert [(p.partition, p.offset) for p in produced] == [(i % 2, i // 2) for i in range(1_000)]
        assert [(r.partition, r.value) for r in client.read(topic)] == [
            (half, b"%d" % i) for half in (0, 1) for i in range(half, 1_000, 2)
        ]

    def test_nothing_to_produce(self, client: Client) -> None:
        assert client.produce_many("untouched", []) == []

    def test_a_topic_may_come_into_being(self, client: Client) -> None:
        client.produce("created-by-produce", b"value")
        assert client.topics()["created-by-produce"] == [0, 1, 2]

    def test_so_it_may_with_a_partition_named(self, client: Client) -> None:
        assert client.produce("created-for-partition-2", b"value", partition=2).partition == 2

    def test_reading_creates_nothing(self, client: Client) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nowhere'"):
            client.read("nowhere")
        assert "nowhere" not in client.topics()

    def test_what_the_broker_refuses(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker, message_timestamp_before_max_ms=1_000, max_message_bytes=10_000)
        with pytest.raises(InvalidTimestampError) as refused:
            client.produce_many(topic, [NewRecord(b"", timestamp="now"), NewRecord(b"", timestamp=DAY)])
        assert [error.batch_index for error in refused.value.record_errors] == [1]
        assert str(refused.value).count("record 1: timestamp 2013-07-10T00:00:00.000Z is before") == 1
        with pytest.raises(RecordTooLargeError, match=f"append to {topic}-0"):
            client.produce(topic, b"x" * 20_000)
        # and the next one goes through
        assert client.produce(topic, b"fine").offset == 0

    def test_what_is_refused_before_anything_is_sent(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker)
        for wrong in (
            {"timestamp": -1},
            {"timestamp": "monday"},
            {"value": "text"},
            {"key": 1},
            {"partition": -1},
            {"compression": "rar"},
            {"headers": [("a", "text")]},
        ):
            with pytest.raises(InvalidArgumentError):
                client.produce(topic, **({"value": b""} | wrong))  # type: ignore[arg-type]
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7"):
            client.produce(topic, b"", partition=7)
        assert client.latest_offsets([(topic, 0)]) == {(topic, 0): 0}


class TestRanges:
    @examples(8)
    @given(data=st.data())
    def test_a_range_is_exactly_its_records(self, broker: tidelog.Broker, data: st.DataObject) -> None:
        """Late, early, equal times over several batches and partitions; what a plain filter finds is what is read."""
        times = st.lists(st.integers(DAY, DAY + 20), max_size=30)
        appended = data.draw(st.lists(times, min_size=1, max_size=3))
        topic = new_topic(broker, len(appended))
        with tidelog.connect(broker.bootstrap_servers) as client:
            records = [NewRecord(b"", timestamp=time, partition=number) for number, part in enumerate(appended) for time in part]
            client.produce_many(topic, records, batch_bytes=data.draw(st.integers(1, 500)))
            for _ in range(3):
                start = data.draw(st.none() | st.integers(DAY - 1, DAY + 21))
                end = data.draw(st.none() | st.integers(start or DAY, DAY + 21))
                found = [(r.partition, r.offset, r.timestamp) for r in client.read(topic, from_time=start, to_time=end)]
                wanted = [
                    (number, offset, time)
                    for number, part in enumerate(appended)
                    for offset, time in enumerate(part)
                    if (start is None or time >= start) and (end is None or time < end)
                ]
                assert found == wanted
                # and so says the other way to read
                names = ("partition", "offset", "timestamp")
                table = tidelog.scan(broker.bootstrap_servers, topic, start, end, columns=names).read_all()
                assert list(zip(*(table[name].cast("int64").to_pylist() for name in names), strict=True)) == wanted

    def test_wrong_ranges(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker)
        with pytest.raises(InvalidArgumentError, match="before its start"):
            client.read(topic, from_time=DAY, to_time=DAY - 1)
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3"):
            client.read(topic, partitions=[0, 3])

    @pytest.mark.parametrize("level", ["read-committed", "READ_COMMITTED", "", None])
    def test_a_misspelt_isolation_reads_nothing(self, broker: tidelog.Broker, client: Client, level: Any) -> None:
        topic = new_topic(broker)
        for ask in (
            lambda: client.read(topic, isolation=level),
            lambda: client.offsets_for_times({(topic, 0): 0}, isolation=level),
            lambda: client.latest_offsets([(topic, 0)], isolation=level),
            lambda: client.reset_group("group", "earliest", partitions=[topic], isolation=level, dry_run=True),
        ):
            with pytest.raises(
                InvalidArgumentError, match=r"unknown isolation level.* expected read_uncommitted or read_committed"
            ):
                ask()

    def test_a_reader_may_stop_in_the_middle(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker)
        client.produce_many(topic, [NewRecord(b"x" * 1_000, timestamp=DAY + i) for i in range(2_000)], batch_bytes=10_000)
        reader = client.read(topic)
        assert next(reader).timestamp == DAY
        assert client.produce(topic, b"between").offset == 2_000
        assert next(reader).timestamp == DAY + 1
        reader.close()  # type: ignore[attr-defined]
        assert sum(1 for _ in client.read(topic)) == 2_001

    def test_deleted_records_are_an_error(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker)
        client.produce_many(topic, [NewRecord(b"x" * 1_000, timestamp=DAY + i) for i in range(2_500)], batch_bytes=10_000)
        reader = client.read(topic)
        next(reader)
        partition = DeleteRecordsPartition(partition_index=0, offset=2_490)
        with RawClient(("127.0.0.1", broker.port)) as raw:
            raw.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000), 2)
        with pytest.raises(tidelog.errors.OffsetOutOfRangeError, match="does not have this offset"):
            list(reader)
        assert [record.offset for record in client.read(topic)] == list(range(2_490, 2_500))


class TestOffsets:
    def test_answers(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker, 2)
        client.produce_many(topic, [NewRecord(b"", timestamp=DAY + i, partition=0) for i in (0, 5, 3, 9)])
        answers = client.offsets_for_times({(topic, 0): DAY + 4, (topic, 1): "2013-07-10"})
        found = answers[topic, 0]
        assert isinstance(found, tidelog.FoundOffset)
        assert found[:3] == (1, DAY + 5, 0)
        assert answers[topic, 1] is NotFound.NOTHING_THAT_LATE
        assert not answers[topic, 1]
        assert not client.offsets_for_times({(topic, 0): DAY + 10})[topic, 0]
        assert client.earliest_offsets([(topic, 0)]) == {(topic, 0): 0}
        assert client.latest_offsets([(topic, 0), (topic, 1)], "read_committed") == {(topic, 0): 4, (topic, 1): 0}
        latest = client.max_timestamp_offsets([(topic, 0)])[topic, 0]
        assert isinstance(latest, tidelog.FoundOffset)
        assert (latest.offset, latest.timestamp) == (3, DAY + 9)

    def test_nothing_asked(self, client: Client) -> None:
        assert client.offsets_for_times({}) == {}

    @pytest.mark.parametrize("time", [-1, -2, "-1", "last week", True, 2**63])
    def test_negative_and_other_wrong_times_are_refused(self, client: Client, time: Any) -> None:
        with pytest.raises(InvalidArgumentError):
            client.offsets_for_times({("any", 0): time})

    def test_unknown_partitions(self, broker: tidelog.Broker, client: Client) -> None:
        topic = new_topic(broker)
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 1 of topic"):
            client.offsets_for_times({(topic, 1): 0})
        with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nowhere'"):
            client.offsets_for_times({("nowhere", 0): 0})

    def test_a_partition_that_was_added_since(self, broker: tidelog.Broker, client: Client) -> None:
        from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

        topic = new_topic(broker)
        assert client.latest_offsets([(topic, 0)]) == {(topic, 0): 0}
        with RawClient(("127.0.0.1", broker.port)) as raw:
            more = CreatePartitionsTopic(name=topic, count=2, assignments=None)
            (result,) = raw.ask(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 2).results
        assert result.error_code == 0
        assert client.latest_offsets([(topic, 1)]) == {(topic, 1): 0}

    @pytest.mark.parametrize("case", [case for case in cases() if case.kind == "log"], ids=str)
    def test_what_kafka_wrote(self, case: Case, golden: dict[str, str]) -> None:
        """Over the wire as in the folder, for the times that matter: those of the records, and beside them."""
        times = sorted({record[1] for record in case.expected["records"] if record[1] >= 0})
        asked = {max(0, time + step) for time in times[:: max(1, len(times) // 8)] for step in (-1, 0, 1)} | {0, 2**63 - 1}
        # The broker does not know these topics' settings: their format is today's to it.
        with tidelog.connect(golden[case.release]) as client, case.open(message_format=2) as log:
            for time in sorted(asked):
                answer = client.offsets_for_times({(case.topic, case.partition): time})[case.topic, case.partition]
                assert (answer or None) == find_offset(log, time)


class TestConnections:
    def test_nobody_there(self) -> None:
        with pytest.raises(BrokerUnreachableError, match=r"refused \(127\.0\.0\.1:1\)"):
            tidelog.connect("127.0.0.1:1")
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:1\).*127\.0\.0\.1:2\)"):
            tidelog.connect("127.0.0.1:1,127.0.0.1:2")

    def test_one_of_several_suffices(self, broker: tidelog.Broker) -> None:
        with tidelog.connect(f"127.0.0.1:1,{broker.bootstrap_servers}") as client:
            client.topics()

    def test_wrong_arguments(self) -> None:
        with pytest.raises(InvalidArgumentError):
            tidelog.connect("nowhere")
        with pytest.raises(InvalidArgumentError):
            tidelog.connect("127.0.0.1:9092", timeout_ms=0)

    def test_a_broker_that_starts_again(self, tmp_path: Any) -> None:
        """Connections that were idle while the broker went away are replaced, for every kind of request."""
        with (
            tidelog.Broker(data_dir=tmp_path / "data", log_retention_ms=-1) as broker,
            tidelog.connect(broker.bootstrap_servers) as client,
        ):
            for count in range(1, 4):
                assert client.produce("t", b"value", timestamp=DAY).offset == count - 1
                assert client.latest_offsets([("t", 0)]) == {("t", 0): count}
                assert sum(1 for _ in client.read("t")) == count
                broker.stop()
                broker.start()

    def test_a_broker_that_is_away_for_a_moment(self, tmp_path: Any) -> None:
        import threading

        with (
            tidelog.Broker(data_dir=tmp_path / "data", log_retention_ms=-1) as broker,
            tidelog.connect(broker.bootstrap_servers) as client,
        ):
            client.produce("t", b"value", timestamp=DAY)
            broker.kill()
            starting = threading.Timer(0.2, broker.start)
            starting.start()
            try:
                assert client.latest_offsets([("t", 0)]) == {("t", 0): 1}
                assert client.produce("t", b"value", timestamp=DAY).offset == 1
            finally:
                starting.join()
