"""What a client does when brokers move, fall silent, talk nonsense, or are too old."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.client.scripted import CLOSE, VERSIONS, ScriptedBroker, metadata
from tests.examples import examples
from tests.patience import PATIENCE_S
from tests.records.records_builder import RecordsBuilder
from tidelog import NewRecord, NotFound
from tidelog.client.connections import failures
from tidelog.client.connections.connection import Connection
from tidelog.errors import (
    BrokerError,
    BrokerUnreachableError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    ProtocolError,
    SecurityProtocolError,
    TidelogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import response_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

SHORT_MS = 250
"""Of calls on a connection that is there: that one waits for an answer for as long as before."""

LONG_MS = PATIENCE_S * 1000


def offsets(*found: tuple[int, int, int, int]) -> ListOffsetsResponse:
    """Partition, error code, timestamp, offset."""
    partitions = [ListOffsetsPartitionResponse(partition_index=p, error_code=e, timestamp=t, offset=o) for p, e, t, o in found]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


def produced(code: int, base_offset: int = 0) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])


def fetched(records: bytes, code: int = 0) -> FetchResponse:
    partition = PartitionData(partition_index=0, error_code=code, high_watermark=9, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def batch(base_offset: int, count: int = 1) -> bytes:
    return bytes(build_batch_v2([Record(base_offset + i, 1_000 + i, 0, None, b"v", ()) for i in range(count)]))


class Cluster:
    """Two brokers; answers for what a test does not care about."""

    def __init__(self) -> None:
        self.leaders = {0: 1}
        self.epoch = 0
        self.on: dict[int, Callable[[Any, int], Any]] = {}
        self.brokers: dict[int, ScriptedBroker] = {}
        for node in (1, 2):
            self.brokers[node] = ScriptedBroker(lambda request, version, node=node: self.answer(node, request, version))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)

    def answer(self, node: int, request: Any, version: int) -> Any:
        if isinstance(request, MetadataRequest):
            return metadata(self.brokers, self.leaders, epoch=self.epoch)
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        return None if isinstance(request, ApiVersionsRequest) else self.on[node](request, version)

    def connect(self, timeout_ms: int = LONG_MS) -> Any:
        return tidelog.connect(self.brokers[1].address, timeout_ms=timeout_ms)

    def asked(self, node: int, kind: type) -> list[Any]:
        return [request for request in self.brokers[node].asked if isinstance(request, kind)]


@pytest.fixture
def cluster() -> Any:
    with Cluster() as made:
        yield made


class TestLeaders:
    @pytest.mark.parametrize(
        "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    )
    def test_metadata_is_read_again_where_a_leader_moved(self, cluster: Cluster, code: ErrorCode) -> None:
        def moved(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
            cluster.leaders, cluster.epoch = {0: 2}, 5
            return offsets((0, code, -1, -1))

        cluster.on = {1: moved, 2: lambda *_: offsets((0, 0, 1_000, 3))}
        with cluster.connect() as client:
            assert client.offsets_for_times({("t", 0): 1})["t", 0].offset == 3
        (asked,) = cluster.asked(2, ListOffsetsRequest)
        assert asked.topics[0].partitions[0].current_leader_epoch == 5

    def test_only_what_moved_is_asked_again_and_leaders_are_asked_at_once(self, cluster: Cluster) -> None:
        cluster.leaders = {0: 1, 1: 2, 2: 1}

        def first(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
            cluster.leaders[2] = 2
            return offsets((0, 0, 1, 10), (2, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1))

        def second(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
            return offsets(*((p.partition_index, 0, 1, 20) for topic in request.topics for p in topic.partitions))

        cluster.on = {1: first, 2: second}
        with cluster.connect() as client:
            answers = client.offsets_for_times({("t", 0): 1, ("t", 1): 1, ("t", 2): 1})
        assert [answer.offset for answer in answers.values()] == [10, 20, 20]
        named = [[p.partition_index for p in request.topics[0].partitions] for request in cluster.asked(2, ListOffsetsRequest)]
        assert named == [[1], [2]]
        assert len(cluster.asked(1, ListOffsetsRequest)) == 1

    def test_a_partition_without_leader_is_waited_for(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        """In a time that passes only between its attempts."""
        pauses: list[float] = []
        monkeypatch.setattr(failures, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))
        cluster.leaders = {0: -1}
        cluster.on = {1: lambda *_: offsets((0, 0, 1, 1))}
        with cluster.connect() as client, pytest.raises(BrokerError, match="has no leader") as error:
            client.cluster.timeout_ms = SHORT_MS
            client.offsets_for_times({("t", 0): 1})
        assert error.value.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert sum(pauses) == pytest.approx(SHORT_MS / 1000)
        assert len(cluster.asked(1, MetadataRequest)) > len(pauses) > 2

    def test_a_fetch_goes_on_with_the_new_leader(self, cluster: Cluster) -> None:
        def first(request: Any, version: int) -> Any:
            if isinstance(request, ListOffsetsRequest):
                return ends(request, version)
            if request.topics[0].partitions[0].fetch_offset == 0:
                return fetched(batch(0, 3))
            cluster.leaders = {0: 2}
            return fetched(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER)

        cluster.on = {1: first, 2: lambda *_: fetched(batch(3, 2))}
        with cluster.connect() as client:
            assert [record.offset for record in client.read("t")] == [0, 1, 2, 3, 4]

    def test_an_advertised_address_where_nobody_is(self) -> None:
        def answer(request: Any, version: int) -> Any:
            found = metadata({1: broker}, {0: 1})
            found.brokers[0].port = 1
            return found if isinstance(request, MetadataRequest) else None

        with (
            ScriptedBroker(answer) as broker,
            tidelog.connect(broker.address) as client,
            pytest.raises(BrokerUnreachableError) as error,
        ):
            client.cluster.timeout_ms = SHORT_MS
            client.offsets_for_times({("t", 0): 1})
        assert f"refused; {broker.address} advertises this address (127.0.0.1:1)" in str(error.value)

    def test_who_only_looks_does_not_name_a_topic_to_an_old_broker(self) -> None:
        """Before Metadata v4 it may create what it is asked for."""

        def answer(request: Any, version: int) -> Any:
            return metadata({1: broker}, {0: 1}) if isinstance(request, MetadataRequest) else None

        for version in (0, 1, 3):
            with (
                ScriptedBroker(answer, VERSIONS | {MetadataRequest: version}) as broker,
                tidelog.connect(broker.address) as client,
            ):
                with pytest.raises(UnknownTopicOrPartitionError):
                    client.partitions("typo")
                assert client.partitions("t")[0].leader.node_id == 1
                # All topics each time; the second one is for the names that were probably meant.
                assert [request.topics for request in broker.asked] == [None if version else []] * 3

    def test_what_will_not_pass_is_raised(self, cluster: Cluster) -> None:
        cluster.on = {1: lambda *_: offsets((0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1))}
        with cluster.connect() as client, pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED") as error:
            client.offsets_for_times({("t", 0): 1})
        assert error.value.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(cluster.asked(1, ListOffsetsRequest)) == 1

    def test_a_topic_that_went_away(self, cluster: Cluster) -> None:
        def gone(request: Any, version: int) -> Any:
            cluster.leaders = {}
            return offsets((0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1))

        cluster.on = {1: gone}
        with cluster.connect() as client, pytest.raises(UnknownTopicOrPartitionError):
            client.offsets_for_times({("t", 0): 1})


def ends(request: ListOffsetsRequest, version: int, end: int = 5) -> ListOffsetsResponse:
    target = request.topics[0].partitions[0].timestamp
    return offsets((0, 0, -1, {-1: end, -2: 0}.get(target, 0)))


class TestNone:
    """Where Kafka's "none" is not to be believed: `ranges` has the table."""

    @pytest.mark.parametrize(
        ("latest", "read"),
        [((0, 999, 4), False), ((0, 1_000, 4), True), ((0, 5_000, 4), True), ((0, -1, -1), True)],
    )
    def test_the_largest_timestamp_decides(self, cluster: Cluster, latest: tuple[int, int, int], read: bool) -> None:
        def answer(request: Any, version: int) -> Any:
            if isinstance(request, FetchRequest):
                return fetched(batch(0, 5))
            target = request.topics[0].partitions[0].timestamp
            return offsets((0, *latest)) if target == -3 else offsets((0, 0, -1, {-1: 5, -2: 0}.get(target, -1)))

        cluster.on = {1: answer}
        with cluster.connect() as client:
            assert client.offsets_for_times({("t", 0): 1_000}) == {("t", 0): NotFound.NOTHING_THAT_LATE}
            assert [record.offset for record in client.read("t", from_time=1_000)] == ([0, 1, 2, 3, 4] if read else [])

    @pytest.mark.parametrize("newest", [0, 6])
    def test_a_broker_that_cannot_tell(self, newest: int) -> None:
        def answer(request: Any, version: int) -> Any:
            if isinstance(request, MetadataRequest):
                return metadata({1: broker}, {0: 1})
            if isinstance(request, FetchRequest):
                return fetched(batch(0, 5))
            if isinstance(request, ListOffsetsRequest):
                target = request.topics[0].partitions[0].timestamp
                offset = {-1: 5, -2: 0}.get(target, -1)
                found = offsets((0, 0, -1, offset))
                found.topics[0].partitions[0].old_style_offsets = [offset]
                return found
            return None

        with (
            ScriptedBroker(answer, VERSIONS | {ListOffsetsRequest: newest}) as broker,
            tidelog.connect(broker.address) as client,
        ):
            assert [record.offset for record in client.read("t", from_time=1_003)] == [3, 4]
            with pytest.raises(UnsupportedVersionError, match=f"found v0 to v{newest}"):
                client.max_timestamp_offsets([("t", 0)])
            if newest == 0:
                with pytest.raises(UnsupportedVersionError):
                    client.offsets_for_times({("t", 0): 0})


class TestProduce:
    def test_a_lost_answer_is_asked_for_with_the_same_sequence(self, cluster: Cluster) -> None:
        answers = [CLOSE, produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), produced(0, 40), produced(0, 41)]
        cluster.on = {1: lambda *_: answers.pop(0)}
        with cluster.connect() as client:
            assert client.produce("t", b"one").offset == 40
            assert client.produce("t", b"two").offset == 41
        sent = [bytes(r.topic_data[0].partition_data[0].records) for r in cluster.asked(1, ProduceRequest)]
        assert sent[0] == sent[1] == sent[2]
        assert [struct.unpack_from(">qhi", records, 43) for records in sent[2:]] == [(7, 0, 0), (7, 0, 1)]

    def test_a_lost_answer_without_producer_ids_is_an_error(self) -> None:
        def answer(request: Any, version: int) -> Any:
            if isinstance(request, MetadataRequest):
                return metadata({1: broker}, {0: 1})
            return CLOSE if isinstance(request, ProduceRequest) else None

        versions = {cls: newest for cls, newest in VERSIONS.items() if cls is not InitProducerIdRequest}
        with ScriptedBroker(answer, versions) as broker, tidelog.connect(broker.address) as client:
            with pytest.raises(BrokerUnreachableError, match="lost"):
                client.produce("t", b"once")
            assert len([request for request in broker.asked if isinstance(request, ProduceRequest)]) == 1

    @pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 2)])
    def test_the_format_is_what_the_broker_s_version_knows(self, version: int, magic: int) -> None:
        def answer(request: Any, _: int) -> Any:
            if isinstance(request, MetadataRequest):
                return metadata({1: broker}, {0: 1})
            return produced(0) if isinstance(request, ProduceRequest) else None

        versions = VERSIONS | {ProduceRequest: version}
        del versions[InitProducerIdRequest]
        with ScriptedBroker(answer, versions) as broker, tidelog.connect(broker.address) as client:
            done = client.produce("t", b"value", timestamp=1_000)
            assert done[3:] == ((-1, -1) if magic == 0 else (1_000, 0))
            records = broker.asked[-1].topic_data[0].partition_data[0].records
            assert records[16] == magic
            if magic < 2:
                with pytest.raises(UnsupportedVersionError, match="Produce"):
                    client.produce("t", b"value", headers=[("a", b"")])
            with pytest.raises(UnsupportedVersionError, match="Produce"):
                client.produce("t", b"value", compression="zstd")

    @pytest.mark.parametrize("loss", [CLOSE, produced(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)], ids=["lost", "written"])
    def test_a_topic_that_knows_no_producers(self, cluster: Cluster, loss: Any) -> None:
        """What may be there is not sent a second time, whether the connection was lost or a replica had not answered."""
        answers = [produced(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), produced(ErrorCode.NOT_LEADER_OR_FOLLOWER), loss]
        cluster.on = {1: lambda *_: answers.pop(0) if answers else produced(0, 1)}
        with cluster.connect() as client:
            with pytest.raises(TidelogError, match=r"lost|NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
                client.produce("t", b"one")
            assert client.produce("t", b"two").offset == 1
        sent = [bytes(r.topic_data[0].partition_data[0].records) for r in cluster.asked(1, ProduceRequest)]
        assert [struct.unpack_from(">q", records, 43)[0] for records in sent] == [7, -1, -1, -1]

    def test_what_was_not_written_goes_again_also_without_producers(self) -> None:
        answers = [produced(ErrorCode.NOT_ENOUGH_REPLICAS), produced(0, 3), CLOSE]

        def answer(request: Any, version: int) -> Any:
            if isinstance(request, MetadataRequest):
                return metadata({1: broker}, {0: 1})
            return answers.pop(0) if isinstance(request, ProduceRequest) else None

        versions = {cls: newest for cls, newest in VERSIONS.items() if cls is not InitProducerIdRequest}
        versions[ProduceRequest] = 2
        with ScriptedBroker(answer, versions) as broker, tidelog.connect(broker.address) as client:
            with pytest.raises(BrokerUnreachableError, match="lost"):
                client.produce_many("t", [NewRecord(b"v", timestamp=1_000)] * 3, batch_bytes=1)
            sent = [r.topic_data[0].partition_data[0].records for r in broker.asked if isinstance(r, ProduceRequest)]
        # The second one is not sent before the first one is there.
        assert [bytes(records) for records in sent] == [bytes(sent[0])] * 3 and not answers

    def test_sequences_that_are_in_doubt_are_not_used_again(self, cluster: Cluster) -> None:
        answers = [produced(0, 1), produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), produced(0, 2)]
        cluster.on = {1: lambda *_: answers.pop(0)}
        with cluster.connect() as client:
            client.produce("t", b"one")
            with pytest.raises(tidelog.errors.OutOfOrderSequenceError):
                client.produce("t", b"two")
            client.produce("t", b"three")
        sent = [bytes(r.topic_data[0].partition_data[0].records) for r in cluster.asked(1, ProduceRequest)]
        assert [struct.unpack_from(">i", records, 53)[0] for records in sent] == [0, 1, 0]
        asked = [r for node in (1, 2) for r in cluster.asked(node, InitProducerIdRequest)]
        assert len(asked) == 2


class TestFetch:
    def reading(self, cluster: Cluster, *answers: Any, end: int = 5) -> None:
        found = list(answers)
        cluster.on = {
            1: lambda request, version: ends(request, version, end) if isinstance(request, ListOffsetsRequest) else found.pop(0)
        }

    def test_a_cut_off_batch_is_asked_for_again_larger(self, cluster: Cluster) -> None:
        builder = RecordsBuilder(1)
        builder.append(1_000, None, b"x" * 3_000_000)
        large = bytes(builder.build().data)
        self.reading(cluster, fetched(large[:1_000_000]), fetched(large), end=1)
        with cluster.connect() as client:
            (record,) = client.read("t")
        assert len(record.value) == 3_000_000
        first, second = (r.topics[0].partitions[0].partition_max_bytes for r in cluster.asked(1, FetchRequest))
        assert first < len(large) <= second

    def test_a_connection_that_is_lost_while_the_next_request_is_sent(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What had come by then is delivered, and the rest fetched on another connection."""
        self.reading(cluster, fetched(batch(0, 3)), fetched(batch(3, 2)))
        send, failures = Connection.send, [0, 1]

        def failing(connection: Connection, message: Any, *rest: Any) -> None:
            if isinstance(message, FetchRequest) and failures and failures.pop(0):
                connection.close()
                raise BrokerUnreachableError("the connection to a broker was lost")
            send(connection, message, *rest)

        monkeypatch.setattr(Connection, "send", failing)
        with cluster.connect() as client:
            assert [record.offset for record in client.read("t")] == [0, 1, 2, 3, 4]
        assert not failures

    @pytest.mark.parametrize("cut", [0, 3, 30, 100])
    def test_a_connection_that_is_lost_within_a_response(self, cluster: Cluster, cut: int) -> None:
        whole = b"".join(response_chunks(fetched(batch(3, 2)), 12, 9))
        self.reading(cluster, fetched(batch(0, 3)), bytearray(whole[:cut]), CLOSE, fetched(batch(3, 2)))
        with cluster.connect() as client:
            found = [record.offset for record in client.read("t")]
        assert found == [0, 1, 2, 3, 4]

    def test_batches_below_the_position_are_passed_over(self, cluster: Cluster) -> None:
        self.reading(cluster, fetched(batch(0, 3) + batch(3, 2)))
        with cluster.connect() as client:
            assert [record.offset for record in client.read("t")] == [0, 1, 2, 3, 4]

    def test_offsets_that_go_backward(self, cluster: Cluster) -> None:
        self.reading(cluster, fetched(batch(2, 2) + batch(0, 3)))
        with cluster.connect() as client, pytest.raises(CorruptBatchError, match="backward"):
            list(client.read("t"))

    def test_a_damaged_record_is_an_error(self, cluster: Cluster) -> None:
        records = bytearray(batch(0, 5))
        records[-3] ^= 1
        self.reading(cluster, fetched(bytes(records)))
        with cluster.connect() as client, pytest.raises(CorruptBatchError, match="checksum"):
            list(client.read("t"))

    def test_out_of_range(self, cluster: Cluster) -> None:
        self.reading(cluster, fetched(b"", ErrorCode.OFFSET_OUT_OF_RANGE))
        with cluster.connect() as client, pytest.raises(OffsetOutOfRangeError, match="fetch of t-0 from offset 0"):
            list(client.read("t"))

    def test_records_that_never_come(self, cluster: Cluster) -> None:
        self.reading(cluster, *[fetched(b"")] * 100)
        with cluster.connect() as client, pytest.raises(BrokerError, match=r"does not return offsets \[0, 5\) of t-0"):
            client.cluster.timeout_ms = SHORT_MS
            list(client.read("t"))


class TestNonsense:
    def test_silence(self) -> None:
        with ScriptedBroker(lambda *_: b"") as broker, pytest.raises(BrokerUnreachableError, match="no answer in time"):
            tidelog.connect(broker.address, timeout_ms=SHORT_MS)

    def test_half_a_response(self) -> None:
        with (
            ScriptedBroker(lambda *_: b"\0\0\0\x20\0\0") as broker,
            pytest.raises(BrokerUnreachableError, match="no answer in time"),
        ):
            tidelog.connect(broker.address, timeout_ms=SHORT_MS)

    def test_a_closed_connection(self) -> None:
        with ScriptedBroker(lambda *_: CLOSE) as broker, pytest.raises(BrokerUnreachableError, match="closed the connection"):
            tidelog.connect(broker.address, timeout_ms=LONG_MS)

    @pytest.mark.parametrize(
        "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x05\x03\x00\x02\x02\x50", b"\xff\xff\xff\xff", b"\0\0\0\0"]
    )
    def test_another_protocol(self, said: bytes) -> None:
        with ScriptedBroker(lambda *_: said) as broker, pytest.raises(ProtocolError, match="not a Kafka broker's"):
            tidelog.connect(broker.address)

    def test_an_alert_of_tls(self) -> None:
        said = b"\x15\x03\x03\x00\x02\x02\x50"
        with ScriptedBroker(lambda *_: said) as broker, pytest.raises(SecurityProtocolError, match="the port requires TLS"):
            tidelog.connect(broker.address)

    def test_a_response_to_another_request(self) -> None:
        with (
            ScriptedBroker(lambda *_: struct.pack(">iihi", 10, 99, 0, 0)) as broker,
            pytest.raises(ProtocolError, match="a different request"),
        ):
            tidelog.connect(broker.address)

    def test_versions_that_are_refused(self) -> None:
        with (
            ScriptedBroker(lambda *_: ApiVersionsResponse(error_code=35)) as broker,
            pytest.raises(ProtocolError, match="error 35"),
        ):
            tidelog.connect(broker.address)

    def test_partitions_that_are_not_answered_for(self, cluster: Cluster) -> None:
        cluster.on = {1: lambda *_: offsets((1, 0, 1, 1))}
        with cluster.connect() as client, pytest.raises(ProtocolError, match="lacks some of the partitions"):
            client.offsets_for_times({("t", 0): 1})

    @examples(40)
    @given(junk=st.binary(max_size=60))
    def test_random_answers(self, junk: bytes) -> None:
        """Whatever comes, it is one of our errors, and soon."""
        with (
            ScriptedBroker(
                lambda request, _: None if isinstance(request, ApiVersionsRequest) else struct.pack(">i", len(junk)) + junk
            ) as broker,
            tidelog.connect(broker.address) as client,
            pytest.raises(TidelogError),
        ):
            client.cluster.timeout_ms = SHORT_MS
            client.partitions("t")
