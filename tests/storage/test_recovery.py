"""Recovery of a segment: indexes, transactions and epochs rebuilt from the log, and the log cut after what is valid."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reader.build import batch, marker
from tests.reader.golden import GOLDEN
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import OffsetOverflowError, StorageError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.formats.txn_index import AbortedTxn
from tidelog.model import TopicPartition
from tidelog.records.batch import iter_headers
from tidelog.records.builder import Producer, build_batch_v2, build_end_txn_marker
from tidelog.records.control import ControlType
from tidelog.records.markers import end_txn_marker
from tidelog.records.records import Record
from tidelog.storage.loading import log_scan
from tidelog.storage.loading.log_scan import scan_log
from tidelog.storage.loading.recovery import recover_segment, scan_segment
from tidelog.storage.partition.leader_epoch_cache import LeaderEpochCache
from tidelog.storage.producers.producer_state_entry import ProducerStateEntry
from tidelog.storage.producers.producer_state_manager import ProducerStateManager
from tidelog.storage.segment.log_segment import LogSegment

CLOCK = ManualClock(0)
SUFFIXES = (".index", ".timeindex", ".txnindex")
CONFIG = LogConfig.from_properties({"index.interval.bytes": 10, "segment.index.bytes": 1000})


def open_segment(directory: Path, base_offset: int = 0, config: LogConfig = CONFIG) -> LogSegment:
    return LogSegment.open(directory, base_offset, config, CLOCK, file_already_exists=True)


def new_state(directory: Path) -> ProducerStateManager:
    return ProducerStateManager(TopicPartition("topic", 0), directory, CLOCK)


def append(segment: LogSegment, *batches: bytes) -> None:
    for data in batches:
        headers = list(iter_headers(data))
        segment.append(headers[-1].last_offset, headers, data)


def filled_segment(directory: Path, messages: int) -> LogSegment:
    """Return a segment of v1 messages at offsets 0, 1, 2..., each with ten times its offset as timestamp."""
    segment = open_segment(directory)
    for offset in range(messages):
        append(segment, batch(offset, [offset * 10], magic=1))
    return segment


def offsets_of(segment: LogSegment) -> list[int]:
    return [header.last_offset for header in segment.batches()]


def write_nonsense_at(path: Path, position: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(random.Random(position).randbytes(size))


# --- Kafka's own tests


def test_fixes_a_corrupt_index(tmp_path: Path) -> None:
    """LogSegmentTest.testRecoveryFixesCorruptIndex."""
    segment = filled_segment(tmp_path, 100)
    segment.close()
    write_nonsense_at(segment.offset_index.path, 5, segment.offset_index.size_bytes)
    segment = open_segment(tmp_path)
    assert recover_segment(segment, new_state(tmp_path)) == 0
    for offset in range(100):
        found = segment.read(offset, 1, min_one_message=True)
        assert found is not None and next(iter(iter_headers(found.data))).base_offset == offset


def test_fixes_a_corrupt_time_index(tmp_path: Path) -> None:
    """LogSegmentTest.testRecoveryFixesCorruptTimeIndex."""
    segment = filled_segment(tmp_path, 100)
    segment.close()
    write_nonsense_at(segment.time_index.path, 5, segment.time_index.size_bytes)
    segment = open_segment(tmp_path)
    assert recover_segment(segment, new_state(tmp_path)) == 0
    for offset in range(100):
        found = segment.find_offset_by_timestamp(offset * 10, 0)
        assert found is not None and found.offset == offset
        found = segment.find_offset_by_timestamp(offset * 10 + 1, 0)
        assert (found and found.offset) == (offset + 1 if offset < 99 else None)


def test_rebuilds_the_transaction_index(tmp_path: Path) -> None:
    """LogSegmentTest.testRecoverTransactionIndex."""
    first, second = Producer(5, 0, 0), Producer(10, 0, 0)
    segment = open_segment(tmp_path, 100)
    append(
        segment,
        batch(100, [1, 1], producer=first, transactional=True),
        batch(102, [2, 2], producer=second, transactional=True),
        batch(104, [3, 3]),
        marker(106, 4, ControlType.ABORT, 10),
        marker(107, 5, ControlType.COMMIT, 5),
    )
    state = new_state(tmp_path)
    assert recover_segment(segment, state) == 0
    assert state.map_end_offset == 108
    assert segment.txn_index.aborted == [AbortedTxn(10, 102, 106, 100)]

    state = new_state(tmp_path)
    state.load_entry(ProducerStateEntry(10, producer_epoch=0, current_txn_first_offset=75))
    assert recover_segment(segment, state) == 0
    assert state.map_end_offset == 108
    assert segment.txn_index.aborted == [AbortedTxn(10, 75, 106, 100)]


def test_rebuilds_the_leader_epochs(tmp_path: Path) -> None:
    """LogSegmentTest.testRecoveryRebuildsEpochCache."""
    epochs = LeaderEpochCache(tmp_path)
    segment = open_segment(tmp_path, 104)
    for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2)):
        append(segment, batch(offset, [1, 1], epoch=epoch))
    assert recover_segment(segment, new_state(tmp_path), epochs) == 0
    assert epochs.entries == (EpochEntry(0, 104), EpochEntry(1, 106), EpochEntry(2, 110))


@pytest.mark.parametrize("seed", range(10))
def test_cuts_at_a_corrupt_message(tmp_path: Path, seed: int) -> None:
    """LogSegmentTest.testRecoveryWithCorruptMessage."""
    chance = random.Random(seed)
    segment = filled_segment(tmp_path, 20)
    damaged = list(segment.batches())[chance.randrange(20)]
    segment.close()
    write_nonsense_at(segment.log.path, damaged.position + chance.randrange(15), 20)
    segment = open_segment(tmp_path)
    before = segment.size_bytes
    assert recover_segment(segment, new_state(tmp_path)) == before - damaged.position
    assert offsets_of(segment) == list(range(damaged.base_offset))
    assert segment.log.path.stat().st_size == segment.size_bytes == damaged.position


# --- what Kafka's tests do not say


def golden_partitions() -> list[Path]:
    return sorted(path for path in (GOLDEN / "kafka-3.9.1" / "log").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", golden_partitions(), ids=lambda path: path.name)
def test_a_partition_of_kafkas(folder: Path, tmp_path: Path) -> None:
    """One segment after the other, every index gone: all files are Kafka's again, snapshots by their entries."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.iterdir():
        if path.suffix in SUFFIXES or (path.suffix == ".snapshot" and int(path.stem) != int(min(folder.glob("*.log")).stem)):
            path.unlink()
    interval = 4096 if folder.name.startswith("__") else 512
    config = LogConfig.from_properties({"index.interval.bytes": interval})
    epochs = LeaderEpochCache(tmp_path, entries=())
    bases = sorted(int(path.stem) for path in tmp_path.glob("*.log"))
    state = new_state(tmp_path)
    state.remove_stray_snapshots(bases)
    state.truncate_and_reload(bases[0] - 1, bases[0], 0)
    for base_offset in bases:
        segment = open_segment(tmp_path, base_offset, config)
        state.map_end_offset = base_offset
        state.take_snapshot()
        assert recover_segment(segment, state, epochs) == 0
        segment.close()
    state.take_snapshot()
    for kafkas in folder.iterdir():
        ours = tmp_path / kafkas.name
        if kafkas.suffix in (".log", *SUFFIXES):
            assert ours.read_bytes() == kafkas.read_bytes(), kafkas.name
        elif kafkas.suffix == ".snapshot" and folder.name != "compacted-0":
            assert sorted(read_snapshot(ours)) == sorted(read_snapshot(kafkas)), kafkas.name
    if state.map_end_offset and folder.name not in ("compacted-0", "deleted-prefix-0"):
        assert epochs.entries == LeaderEpochCache(folder).entries


def test_a_torn_tail_and_a_preallocated_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = b"".join(batch(offset, [offset], value=bytes(100)) for offset in range(10))
    for tail in (b"\0" * 3000, batch(10, [1])[:-1], b"\0" * 17, b"?" * 5):
        (tmp_path / "00000000000000000000.log").write_bytes(whole + tail)
        segment = open_segment(tmp_path)
        with caplog.at_level(logging.WARNING):
            assert recover_segment(segment, new_state(tmp_path)) == len(tail)
        assert f"truncated at byte {len(whole)} of {len(whole) + len(tail)}" in caplog.text
        assert segment.size_bytes == len(whole) == segment.log.path.stat().st_size
        assert segment.read_next_offset() == 10
        assert segment.largest_record_timestamp == 9
        segment.close()
        caplog.clear()


def test_an_empty_segment(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, 40)
    state = new_state(tmp_path)
    state.map_end_offset = 40
    assert recover_segment(segment, state) == 0
    assert (segment.read_next_offset(), state.map_end_offset, segment.largest_record_timestamp) == (40, 40, None)
    assert (segment.offset_index.path.stat().st_size, segment.time_index.path.stat().st_size) == (0, 0)


def test_offsets_that_go_back_end_the_log(tmp_path: Path) -> None:
    good = batch(5, [1, 1]) + batch(7, [2])
    for bad in (batch(7, [3]), batch(6, [3, 3, 3]), batch(0, [3])):
        (tmp_path / "00000000000000000000.log").write_bytes(good + bad)
        segment = open_segment(tmp_path)
        assert recover_segment(segment, new_state(tmp_path)) == len(bad)
        assert offsets_of(segment) == [6, 7]
        segment.close()


def test_an_overflow_changes_nothing(tmp_path: Path) -> None:
    segment = filled_segment(tmp_path, 10)
    segment.close()
    with segment.log.path.open("ab") as file:
        file.write(batch(2**31 + 1, [5]))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    segment = open_segment(tmp_path)
    state, epochs = new_state(tmp_path), LeaderEpochCache(tmp_path)
    with pytest.raises(OffsetOverflowError, match="does not fit in the segment with base offset 0"):
        recover_segment(segment, state, epochs)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert state.map_end_offset == 0


def test_a_marker_that_cannot_be_read_is_the_last_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, which stops there: what follows is cut off."""
    broken = build_batch_v2(
        [Record(2, 1, 0, b"\0", b"")], producer=Producer(1, 0, -1), is_transactional=True, is_control=True, leader_epoch=1
    )
    head = batch(0, [1, 1], producer=Producer(1, 0, 0), transactional=True, epoch=0) + broken
    tail = batch(3, [1], epoch=2)
    (tmp_path / "00000000000000000000.log").write_bytes(head + tail)
    segment, state, epochs = open_segment(tmp_path), new_state(tmp_path), LeaderEpochCache(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert recover_segment(segment, state, epochs) == len(tail)
    assert "a control record's key is too short" in caplog.text
    assert [entry.epoch for entry in epochs.entries] == [0, 1]
    assert state.map_end_offset == 3 and state.first_undecided_offset == 0


def test_more_entries_than_the_index_takes(tmp_path: Path) -> None:
    """Kafka fails there; here the index is sparse at its end, and the largest timestamp is in it nonetheless."""
    data = b"".join(batch(offset, [offset * 10]) for offset in range(100))
    (tmp_path / "00000000000000000000.log").write_bytes(data)
    segment = open_segment(tmp_path, config=LogConfig.from_properties({"index.interval.bytes": 0, "segment.index.bytes": 120}))
    assert recover_segment(segment, new_state(tmp_path)) == 0
    assert segment.offset_index.entries == 15
    assert segment.largest_timestamp == 990
    for offset in range(100):
        found = segment.find_offset_by_timestamp(offset * 10, 0)
        assert found is not None and found.offset == offset


def test_only_newer_epochs_are_taken(tmp_path: Path) -> None:
    epochs = LeaderEpochCache(tmp_path)
    epochs.assign_all([EpochEntry(1, 0), EpochEntry(3, 2)])
    segment = open_segment(tmp_path)
    append(segment, *(batch(offset, [1], epoch=epoch) for offset, epoch in enumerate((1, 2, 3, 4, 2, 5))))
    assert recover_segment(segment, new_state(tmp_path), epochs) == 0
    assert epochs.entries == (EpochEntry(1, 0), EpochEntry(3, 2), EpochEntry(4, 3), EpochEntry(5, 5))


def test_progress_and_a_walk_made_ahead(tmp_path: Path) -> None:
    segment = filled_segment(tmp_path, 100)
    expected = segment.offset_index.to_bytes(), segment.size_bytes
    heard: list[int] = []
    scanned = scan_segment(segment, heard.append)
    assert sum(heard) == segment.size_bytes
    assert recover_segment(segment, new_state(tmp_path), scanned=scanned) == 0
    assert (segment.offset_index.to_bytes(), segment.size_bytes) == expected


# --- the walk over a file


def write_log(path: Path, *sizes: int) -> Path:
    path.write_bytes(b"".join(batch(offset, [offset], value=bytes(size)) for offset, size in enumerate(sizes)))
    return path


def scanned_of(path: Path, size_bytes: int | None = None) -> log_scan.ScannedLog:
    segment = open_segment(path.parent)
    return scan_log(segment.log, segment.size_bytes if size_bytes is None else size_bytes, 0, 4096)


def test_batches_larger_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path / "00000000000000000000.log", 10, 5000, 10, 70_000, 1, 1, 100_000, 3)
    expected = scanned_of(path)
    assert expected.is_whole and expected.batches == 8
    monkeypatch.setattr(log_scan, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(log_scan, "SUSPECT_BYTES", 50_000)
    assert scanned_of(path) == expected


def test_a_length_that_damage_made_large_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path / "00000000000000000000.log", 100, *[1000] * 200)
    first = next(iter_headers(path.read_bytes())).size
    with path.open("r+b") as file:
        file.seek(first + 8)
        file.write((150_000).to_bytes(4, "big"))
    monkeypatch.setattr(log_scan, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(log_scan, "SUSPECT_BYTES", 50_000)
    found = scanned_of(path)
    assert found.fault == "the batch checksum does not match"
    assert (found.valid_bytes, found.batches) == (first, 1)


def test_a_part_of_a_log(tmp_path: Path) -> None:
    path = write_log(tmp_path / "00000000000000000000.log", 100, 200, 300)
    ends = [header.end_position for header in iter_headers(path.read_bytes())]
    for size in range(ends[-1] + 1):
        found = scanned_of(path, size)
        assert (found.valid_bytes, found.fault) == (max((end for end in ends if end <= size), default=0), "")


def test_a_log_that_became_shorter(tmp_path: Path) -> None:
    path = write_log(tmp_path / "00000000000000000000.log", 100, 200, 300)
    segment = open_segment(tmp_path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(StorageError, match="shorter than what was written"):
        scan_log(segment.log, segment.size_bytes, 0, 4096)


# --- the producers' state


def entries_of(state: ProducerStateManager) -> dict[int, list[object]]:
    return {key: [getattr(entry, name) for name in entry.__slots__] for key, entry in state.active_producers.items()}


@examples(60)
@given(seed=st.integers(0, 2**32), batches=st.integers(0, 60))
def test_state_as_if_every_batch_had_been_told(tmp_path_factory: pytest.TempPathFactory, seed: int, batches: int) -> None:
    """Recovery says the state of few batches; it is the same as if it had been passed all."""
    directory = tmp_path_factory.mktemp("log")
    chance = random.Random(seed)
    offset = 0
    data = b""
    for _ in range(batches):
        producer = chance.randint(1, 3)
        epoch = chance.choice([0, 0, 0, 1])
        if chance.randint(0, 4) == 0:
            kind = chance.choice([ControlType.ABORT, ControlType.COMMIT])
            data += build_end_txn_marker(
                offset, offset, kind, Producer(producer, epoch, -1), coordinator_epoch=chance.randint(0, 2)
            )
            offset += 1
        else:
            records = chance.randint(1, 3)
            of = None if chance.randint(0, 4) == 0 else Producer(producer, epoch, chance.randint(0, 100))
            is_transactional = of is not None and chance.randint(0, 2) > 0
            data += batch(offset, [chance.randint(0, 100)] * records, producer=of, transactional=is_transactional)
            offset += records
    (directory / "00000000000000000000.log").write_bytes(data)
    segment, state = open_segment(directory), new_state(directory)
    assert recover_segment(segment, state) == 0

    expected = new_state(directory)
    aborted = []
    for header in iter_headers(data):
        told = end_txn_marker(header, data[header.position : header.end_position]) if header.is_control else None
        completed = expected.replay(header, told)
        if completed is not None and completed[0].is_aborted:
            aborted.append(AbortedTxn(*completed[0][:3], completed[1]))
    assert segment.txn_index.aborted == aborted
    assert state.map_end_offset == expected.map_end_offset
    assert entries_of(state) == entries_of(expected)
    assert state.first_unstable_offset == expected.first_unstable_offset
