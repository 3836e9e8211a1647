"""ListOffsets and OffsetForLeaderEpoch, where Kafka is not asked: by files' times, better than Kafka's answers, after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.broker.cold import ColdDisk, forget
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.produce_helpers import NOW_MS, message_set, produce_request, some_records
from tests.broker.raw import RawClient
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("offsets"), tidelog_time_map_enable="false")
    yield broker
    broker.stop()


@pytest.fixture
def asking(shared: RunningBroker) -> Iterator[RawClient]:
    with shared.client() as client:
        yield client


def ask(client: RawClient, topic: str, *timestamps: int, version: int = 9, count: int = 10) -> list[ListOffsetsPartitionResponse]:
    answers = []
    for timestamp in timestamps:
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp, count)])])
        answers += client.ask(request, version).topics[0].partitions
    return answers


def fill(broker: RunningBroker, topic: str, *times: int, magic: int = 2, roll: bool = False) -> None:
    def append() -> None:
        log = broker.node.manager.log(topic, 0)
        for at_ms in times:
            if roll and log.segments.active.size_bytes:
                log.roll()
            log.append_as_leader(bytearray(message_set(magic, records=some_records(2, at_ms=at_ms))), 0)
        log.update_high_watermark(log.log_end_offset_metadata)

    broker.on_loop(append)


def test_by_the_files_times(shared: RunningBroker, asking: RawClient) -> None:
    """Version 0: where segments begin whose files are no younger, newest first; and the log end, for who asks for now."""
    shared.create_topic("files")
    fill(shared, "files", NOW_MS, NOW_MS, NOW_MS, roll=True)

    def date() -> None:
        for index, segment in enumerate(shared.node.manager.log("files", 0).segments):
            segment.log.close_handlers()
            os.utime(segment.log.path, ((NOW_MS + index * HOUR_MS) / 1000,) * 2)

    shared.on_loop(date)

    def offsets(timestamp: int, count: int = 10) -> list[int]:
        return ask(asking, "files", timestamp, version=0, count=count)[0].old_style_offsets

    assert offsets(-1) == [6, 4, 2, 0]
    assert offsets(-1, 1) == [6]
    assert offsets(-2) == [0]
    assert offsets(NOW_MS - 1) == []
    assert offsets(NOW_MS + HOUR_MS) == [2, 0]
    assert offsets(NOW_MS + HOUR_MS, 1) == [2]
    assert offsets(1 << 60) == [6, 4, 2, 0]


def test_none_is_said_only_where_it_is_true(shared: RunningBroker, asking: RawClient) -> None:
    """Kafka picks one segment by its largest time; here records below the log start do not hide those of the next segment."""
    shared.create_topic("true")
    fill(shared, "true", 5000, 1000, roll=False)
    fill(shared, "true", 3000, 2000, roll=True)
    shared.on_loop(lambda: shared.node.manager.log("true", 0).maybe_increment_log_start_offset(2))
    found = [(one.offset, one.timestamp) for one in ask(asking, "true", 0, 1001, 1002, 3001, 3002, -3)]
    assert found == [(2, 1000), (3, 1001), (4, 3000), (5, 3001), (-1, -1), (5, 3001)]


def test_no_timestamps_in_the_oldest_format(start_broker: StartBroker) -> None:
    broker = start_broker()
    broker.create_topic("oldest", message_format_version="0.9.0")
    fill(broker, "oldest", NOW_MS, magic=0)
    with broker.client() as client:
        answers = ask(client, "oldest", -1, -2, -3, NOW_MS)
        assert [(one.error_code, one.offset) for one in answers] == [
            (ErrorCode.NONE, 2),
            (ErrorCode.NONE, 0),
            (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1),
            (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1),
        ]


def test_cold_segments(shared: RunningBroker, asking: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look-up needs from the disk is read on another thread."""
    shared.create_topic("cold")
    times = [NOW_MS + 10 * index for index in range(300)]
    fill(shared, "cold", *times[:150])
    fill(shared, "cold", *times[150:], roll=False)
    shared.on_loop(lambda: shared.node.manager.log("cold", 0).roll())
    fill(shared, "cold", NOW_MS + 10_000)
    forget(shared.on_loop(lambda: shared.node.manager.log("cold", 0).directory))
    disk = ColdDisk(shared, monkeypatch)
    assert [one.offset for one in ask(asking, "cold", NOW_MS + 1505, -3)] == [302, 601]
    assert disk.spared > 2


def test_epochs_after_a_crash(start_broker: StartBroker, asking: RawClient) -> None:
    """A broker that was not stopped cleanly leads in a new epoch; what was written before ends where that begins."""
    broker = start_broker()
    broker.create_topic("led", 2)
    with broker.client() as client:
        assert not client.ask(produce_request([("led", 0, message_set(2))]), 9).responses[0].partition_responses[0].error_code
    broker.stop()
    (broker.data_dir / ".kafka_cleanshutdown").unlink()
    broker.start()
    with broker.client() as client:

        def ends(*epochs: int, current: int = -1, partition: int = 0) -> list[tuple[int, int, int]]:
            wanted = [OffsetForLeaderPartition(partition, current, epoch) for epoch in epochs]
            answer = client.ask(OffsetForLeaderEpochRequest(-2, [OffsetForLeaderTopic("led", wanted)]), 4)
            return [(one.error_code, one.leader_epoch, one.end_offset) for one in answer.topics[0].partitions]

        assert ends(0, 1, 2) == [(0, 0, 3), (0, 1, 3), (0, -1, -1)]
        assert ends(0, 1, 2, partition=1) == [(0, 0, 0), (0, -1, -1), (0, -1, -1)], "there was nothing to lose"
        assert ends(0, current=0) == [(ErrorCode.FENCED_LEADER_EPOCH, -1, -1)]
        assert ends(0, current=2) == [(ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)]
        latest, earliest = ask(client, "led", -1, -2)
        assert (latest.offset, latest.leader_epoch, earliest.leader_epoch) == (3, 1, 0)
        client.ask(produce_request([("led", 0, message_set(2))]), 9)
        assert ends(0, 1, current=1) == [(0, 0, 3), (0, 1, 6)]


class TestKafkasLines:
    """ListOffsetsRequestTest, OffsetsForLeaderEpochTest, OffsetsForLeaderEpochRequestTest, where one broker leads everything."""

    def test_response_default_offset_and_leader_epoch_for_all_versions(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("all-versions")
        fill(shared, "all-versions", 100, 200, 300, 400, 500)
        for version in range(12):
            epoch = 0 if version >= 4 else -1
            zero, earliest, latest, largest, local, to_upload = ask(
                asking, "all-versions", 0, -2, -1, -3, -4, -6, version=version
            )
            assert to_upload.error_code == (0 if version >= 11 else ErrorCode.UNSUPPORTED_VERSION)
            assert (to_upload.offset, to_upload.timestamp, to_upload.leader_epoch) == (-1, -1, -1)
            if version == 0:
                assert (zero.old_style_offsets, earliest.old_style_offsets, latest.old_style_offsets) == ([], [0], [10, 0])
            else:
                assert (zero.offset, zero.timestamp, zero.leader_epoch) == (0, 100, epoch)
                assert (earliest.offset, earliest.timestamp, earliest.leader_epoch) == (0, -1, epoch)
                assert (latest.offset, latest.timestamp, latest.leader_epoch) == (10, -1, epoch)
            if version >= 7:
                assert (largest.offset, largest.timestamp, largest.leader_epoch) == (9, 501, 0)
            else:
                assert (largest.error_code, largest.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
            if version >= 8:
                assert (local.error_code, local.offset, local.leader_epoch) == (0, 0, 0)
            else:
                assert local.error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_list_offsets_error_codes(self, shared: RunningBroker, asking: RawClient) -> None:
        """Nobody gets an answer for what there is not, as whoever he asks; a partition is asked for once in a request."""
        for replica_id in (-1, -2, 0, 7):
            request = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic("unheard-of", [ListOffsetsPartition(0, -1, -1)])])
            (answer,) = asking.ask(request, 9).topics[0].partitions
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        shared.create_topic("twice", 2)
        wanted = [ListOffsetsPartition(index, -1, -1) for index in (0, 1, 0)]
        answers = asking.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("twice", wanted)]), 9).topics[0].partitions
        assert [one.error_code for one in answers] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]

    def test_current_epoch_validation(self, shared: RunningBroker, asking: RawClient) -> None:
        shared.create_topic("known-epochs")
        current = shared.on_loop(lambda: shared.node.leadership.epoch_of(TopicPartition("known-epochs", 0)))
        expected = {
            -1: ErrorCode.NONE,
            current: ErrorCode.NONE,
            current + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
            -2: ErrorCode.FENCED_LEADER_EPOCH,
        }
        for epoch, code in expected.items():
            request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("known-epochs", [ListOffsetsPartition(0, epoch, -1)])])
            assert asking.ask(request, 9).topics[0].partitions[0].error_code == code
            wanted = OffsetForLeaderTopic("known-epochs", [OffsetForLeaderPartition(0, epoch, current)])
            assert asking.ask(OffsetForLeaderEpochRequest(-2, [wanted]), 4).topics[0].partitions[0].error_code == code

    def test_offsets_for_leader_epoch_error_codes(self, asking: RawClient) -> None:
        wanted = OffsetForLeaderTopic("unheard-of", [OffsetForLeaderPartition(0, -1, 0)])
        (answer,) = asking.ask(OffsetForLeaderEpochRequest(-2, [wanted]), 4).topics[0].partitions
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
