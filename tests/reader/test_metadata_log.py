"""``__cluster_metadata-0`` of any folder: what Kafka wrote, and all that may be wrong with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fields import check_fields
from tests.reader.golden import GOLDEN
from tidelog.errors import CorruptDataError, TidelogError
from tidelog.formats.files import Notices
from tidelog.metadata.batches import build_batch, build_control_batch, build_snapshot
from tidelog.metadata.control_records import LeaderChangeMessage
from tidelog.metadata.frame import encode_record
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import BeginTransactionRecord, ConfigRecord, FeatureLevelRecord, NoOpRecord
from tidelog.reader.metadata_log import METADATA_DIR, list_snapshots, read_metadata_log, read_snapshot

FOLDERS = sorted((GOLDEN / "metadata").glob("*/stopped"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.parent.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a Kafka left."""
    return shutil.copytree(request.param, tmp_path / "data")


def state(image: MetadataImage) -> list[bytes]:
    return sorted(image.to_values())


def setting(value: int) -> bytes:
    return encode_record(ConfigRecord(2, "t", "x", str(value)), 0)


def write(data: Path, name: str, *batches: bytes) -> Path:
    path = data / METADATA_DIR / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(batches))
    return path


def segment(start: int, count: int, epoch: int = 1) -> list[bytes]:
    return [build_batch([setting(offset)], offset, epoch, 1000 + offset) for offset in range(start, start + count)]


def value_of(data: Path) -> str:
    log = read_metadata_log(data)
    assert log is not None
    return log.image.topic_config("t")["x"]


def test_what_kafka_wrote(folder: Path) -> None:
    log = read_metadata_log(folder)
    assert log is not None
    assert sorted(log.image.topics) == ["after-kill", "one", *(f"t{i}" for i in range(8)), "two"]
    assert log.image.topic_config("one") == {"max.message.bytes": "2000000"}
    assert log.image.topic_config("two") == {"cleanup.policy": "compact"}
    assert len(log.image.topics["one"].partitions) == 5
    assert log.image.partitions_on(log.image.topics["one"], 1) == [0, 1, 2, 3, 4]
    assert log.image.partitions_on(log.image.topics["one"], 2) == []
    assert log.image.broker_config(1)["log.retention.ms"] == "123456789"
    assert set(log.image.scram) == {("alice", 1)}
    assert len(log.image.acls) == 1
    assert log.image.next_producer_id == 1000
    assert log.image.brokers[1].fenced
    assert log.image.unknown == []
    check_fields(log, start_offset=0, epoch=2, leader_id=1, torn_bytes=0)
    assert log.snapshot is not None
    assert log.snapshot.end_offset == log.end_offset - 1  # It was taken at the end; one no-op, or a change, came after it.


def test_snapshots_say_the_same_as_the_log_below_them(folder: Path) -> None:
    whole = read_metadata_log(folder)
    assert whole is not None
    assert len(list_snapshots(folder / METADATA_DIR)) >= 2
    for snapshot in list_snapshots(folder / METADATA_DIR):
        snapshot.path.unlink()
        log = read_metadata_log(folder)
        assert log is not None
        assert state(log.image) == state(whole.image)
        assert log.end_offset == whole.end_offset
    assert log.snapshot is None


def test_a_damaged_snapshot_is_no_loss_while_the_log_reaches_back(folder: Path) -> None:
    whole = read_metadata_log(folder)
    newest = list_snapshots(folder / METADATA_DIR)[0].path
    data = bytearray(newest.read_bytes())
    data[200] ^= 1
    newest.write_bytes(data)
    notices = Notices()
    log = read_metadata_log(folder, notices)
    assert log is not None
    assert whole is not None
    assert state(log.image) == state(whole.image)
    assert log.snapshot is not None
    assert log.snapshot.path != newest
    with pytest.raises(CorruptDataError, match="damaged at offset"):
        read_snapshot(newest)


def test_without_a_log_there_is_none(tmp_path: Path) -> None:
    assert read_metadata_log(tmp_path) is None
    (tmp_path / METADATA_DIR).mkdir()
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert (log.end_offset, log.image.topics) == (0, {})


def test_a_formatted_folder_begins_with_its_bootstrap_records(tmp_path: Path) -> None:
    level = encode_record(FeatureLevelRecord("metadata.version", 29), 0)
    (tmp_path / "bootstrap.checkpoint").write_bytes(b"".join(build_snapshot([level], 1, 0)))
    write(tmp_path, "00000000000000000000.log")
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert log.image.metadata_version == 29
    write(tmp_path, "00000000000000000000.log", *segment(0, 1))
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert log.image.metadata_version == 1


def test_a_log_that_begins_behind_its_snapshot(tmp_path: Path) -> None:
    write(tmp_path, "00000000000000000010.log", *segment(10, 5))
    with pytest.raises(CorruptDataError, match="beginning of the metadata log is missing"):
        read_metadata_log(tmp_path)
    write(tmp_path, "00000000000000000009-0000000001.checkpoint", *build_snapshot([setting(8)], 1, 0))
    with pytest.raises(CorruptDataError, match="beginning of the metadata log is missing"):
        read_metadata_log(tmp_path)
    path = write(tmp_path, "00000000000000000012-0000000001.checkpoint", *build_snapshot([setting(11)], 1, 0))
    assert value_of(tmp_path) == "14"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match=r"snapshot.*checkpoint"):
        read_metadata_log(tmp_path)


def test_a_snapshot_without_its_footer(tmp_path: Path) -> None:
    path = write(tmp_path, "00000000000000000012-0000000001.checkpoint", *list(build_snapshot([setting(11)], 1, 0))[:-1])
    with pytest.raises(CorruptDataError, match="no footer"):
        read_metadata_log(tmp_path)
    path.unlink()


def test_a_snapshot_alone(tmp_path: Path) -> None:
    write(tmp_path, "00000000000000000012-0000000003.checkpoint", *build_snapshot([setting(11)], 3, 77))
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert (log.end_offset, log.epoch, log.last_timestamp) == (12, 3, 77)


def test_several_segments_without_one(tmp_path: Path) -> None:
    for start in (0, 4, 8):
        write(tmp_path, f"{start:020}.log", *segment(start, 4))
    assert value_of(tmp_path) == "11"
    (tmp_path / METADATA_DIR / "00000000000000000004.log").unlink()
    with pytest.raises(CorruptDataError, match="gap: found offset 8, expected offset 4"):
        read_metadata_log(tmp_path)


def test_a_torn_tail_is_left_out(tmp_path: Path) -> None:
    batches = segment(0, 3)
    path = write(tmp_path, "00000000000000000000.log", *batches, batches[0][:30])
    notices = Notices()
    log = read_metadata_log(tmp_path, notices)
    assert log is not None
    assert (log.end_offset, log.torn_bytes) == (3, 30)
    path.write_bytes(path.read_bytes()[:-31])
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert log.end_offset == 2


@pytest.mark.parametrize("first", [0, 9, 300])
def test_a_tail_may_be_torn_inside_its_offset(tmp_path: Path, caplog: pytest.LogCaptureFixture, first: int) -> None:
    """No checksum covers it: a power failure between two sectors leaves a sound batch with another offset."""
    if first:
        write(tmp_path, f"{first:020}-0000000001.checkpoint", *build_snapshot([setting(first - 1)], 1, 0))
    batches = segment(first, 4)
    path = write(tmp_path, f"{first:020}.log", *batches)
    data, torn = path.read_bytes(), len(batches[-1])
    for lost in (7, 8):
        at = len(data) - torn
        path.write_bytes(data[:at] + bytes(lost) + data[at + lost :])
        log = read_metadata_log(tmp_path)
        assert log is not None
        if int.from_bytes(data[at : at + 8], "big") == int.from_bytes(bytes(lost) + data[at + lost : at + 8], "big"):
            assert (log.end_offset, log.torn_bytes) == (first + 4, 0)
        else:
            assert (log.end_offset, log.torn_bytes, value_of(tmp_path)) == (first + 3, torn, str(first + 2))
            assert "has lost the first bytes of its offset" in caplog.text
    for other in (1, first + 77):
        path.write_bytes(data[: len(data) - torn] + other.to_bytes(8, "big") + data[len(data) - torn + 8 :])
        with pytest.raises(CorruptDataError, match="damaged at offset"):
            read_metadata_log(tmp_path)
    # What sound batches follow is damage.
    path.write_bytes(data[: len(data) - 2 * torn] + bytes(8) + data[len(data) - 2 * torn + 8 :])
    with pytest.raises(CorruptDataError, match="damaged at offset"):
        read_metadata_log(tmp_path)


def test_an_open_transaction_does_not_count(tmp_path: Path) -> None:
    begin = encode_record(BeginTransactionRecord("x"), 0)
    write(tmp_path, "00000000000000000000.log", *segment(0, 1), build_batch([begin, setting(5)], 1, 1, 0))
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert log.is_in_transaction
    assert log.image.topic_config("t") == {"x": "0"}


def test_leader_changes(tmp_path: Path) -> None:
    change = build_control_batch(LeaderChangeMessage(0, 7), 1, 2, 0)
    write(tmp_path, "00000000000000000000.log", *segment(0, 1), change, *segment(2, 1, epoch=2))
    log = read_metadata_log(tmp_path)
    assert log is not None
    assert (log.leader_id, log.epoch) == (7, 2)
    write(tmp_path, "00000000000000000000.log", *segment(0, 1, epoch=3), *segment(1, 1, epoch=2))
    with pytest.raises(CorruptDataError, match="epoch decreases"):
        read_metadata_log(tmp_path)


def test_bytes_that_are_no_record_name_the_offset(tmp_path: Path) -> None:
    noop = encode_record(NoOpRecord(), 0)
    write(tmp_path, "00000000000000000000.log", build_batch([noop], 0, 1, 0), build_batch([noop, b"\x07"], 1, 1, 0))
    with pytest.raises(CorruptDataError, match="damaged at offset 1"):
        read_metadata_log(tmp_path)


BATCHES = [build_batch([setting(offset)], offset, 1, 1000) for offset in range(6)]


@settings(max_examples=300)
@given(st.integers(0, len(b"".join(BATCHES)) * 8 - 1))
def test_no_bit_changes_the_answer_in_silence(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    """It is found, or it hits the last batch, which then counts as torn; an epoch alone has no checksum."""
    data = bytearray(b"".join(BATCHES))
    data[bit // 8] ^= 1 << bit % 8
    folder = tmp_path_factory.mktemp("bits")
    write(folder, "00000000000000000000.log", bytes(data))
    try:
        log = read_metadata_log(folder)
    except TidelogError as error:
        assert "damaged at offset" in str(error)
        assert ".log" in str(error)
        return
    assert log is not None
    in_last = bit // 8 >= len(data) - len(BATCHES[-1])
    if log.end_offset == 6:
        assert log.image.topic_config("t") == {"x": "5"}
    else:
        assert in_last
        assert log.torn_bytes == len(BATCHES[-1])
        assert log.image.topic_config("t") == {"x": "4"}
