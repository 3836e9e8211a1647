"""A write into many partitions is there whole or not at all: crashes at every step, other writers, a Kafka in between."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.storage.crash_states import CrashStates
from tests.storage.partition_logs import batch
from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.errors import CorruptCheckpointError, DataDirNotFoundError, StorageError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.dir_lock import DirLock
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import HEADER_BYTES
from tidelog.storage.folder.staged_write import TURN_FILE, StagedWrite, finish_interrupted_writes
from tidelog.storage.folder.write_journal import COMMITTED_FILE, is_pending, writer_file
from tidelog.storage.loading.loader import load
from tidelog.storage.log_manager import LogManager
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.topics.new_topic import NewTopic

CLOCK = ManualClock(1_700_000_000_000)
SMALL_INDEXES = {"segment.index.bytes": "4096"}
"""Indexes are made as large as they may become, and states are copied often."""
KEYS = [TopicPartition("events", 0), TopicPartition("events", 1)]


def folder(directory: Path, first: int = 2, **properties: str) -> Path:
    """Make a folder of one topic: `first` records in partition 0, none in partition 1."""
    texts = SMALL_INDEXES | {key.replace("_", "."): value for key, value in properties.items()}
    with NewTopic(directory, "events", 2, texts, CLOCK) as new:
        for i in range(first):
            new.logs[0].append_as_leader(batch(0, 1000 + i), 0)
        new.commit()
    return directory


def write(directory: Path, times: list[int], note: str | None = None) -> None:
    with StagedWrite(directory, CLOCK, writer="me") as one:
        one.begin(KEYS)
        for time in times:
            for key in KEYS:
                one.append(key, batch(0, time))
        one.commit(note)


def times(directory: Path) -> dict[TopicPartition, list[int]]:
    """Return the times of the records that a reader sees."""
    found = {}
    log_dir = LogDir(directory)
    for key in KEYS:
        with log_dir.log(*key) as log:
            end = log.log_end_offset if log.high_watermark is None else log.high_watermark
            headers = list(log.headers(end_offset=end, check_crc=True))
            assert [header.base_offset for header in headers] == list(range(len(headers)))
            found[key] = [header.max_timestamp for header in headers]
    return found


def test_segments_are_added_and_the_note_is_kept(tmp_path: Path) -> None:
    folder(tmp_path)
    write(tmp_path, [5, 6], "first")
    write(tmp_path, [7], "second")
    assert times(tmp_path) == {KEYS[0]: [1000, 1001, 5, 6, 7], KEYS[1]: [5, 6, 7]}
    assert [path.name for path in sorted((tmp_path / "events-0").glob("*.log"))] == [
        names.file_name(n, ".log") for n in (0, 2, 4)
    ]
    assert [path.name for path in sorted((tmp_path / "events-1").glob("*.log"))] == [names.file_name(n, ".log") for n in (0, 2)]
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        assert read_offset_checkpoint(tmp_path / name) == {KEYS[0]: 5, KEYS[1]: 3}
    with StagedWrite(tmp_path, CLOCK, writer="me") as one:
        assert one.note == "second"
    with StagedWrite(tmp_path, CLOCK, writer="another") as one:
        assert one.note is None
    with LogManager(tmp_path, CLOCK) as manager:
        log = manager.log("events", 0)
        assert log.log_end_offset == 5
        found = log.fetch_offset_by_timestamp(1001)
        assert found is not None
        assert found.offset == 1
        log.append_as_leader(batch(0, 9), 0)
    write(tmp_path, [10])
    assert times(tmp_path)[KEYS[0]] == [1000, 1001, 5, 6, 7, 9, 10]


def test_large_writes_have_several_segments_and_time_maps(tmp_path: Path) -> None:
    folder(tmp_path, segment_bytes=str(200_000), index_interval_bytes="1000")
    with StagedWrite(tmp_path, CLOCK) as one:
        one.begin(KEYS[:1])
        for i in range(6):
            one.append(KEYS[0], batch(0, 2000 + i, 900, value=b"x" * 90))
        one.commit()
    found = sorted(path.name for path in (tmp_path / "events-0").iterdir() if path.is_file())
    logs = [name for name in found if name.endswith(".log")]
    assert len(logs) == 4
    for name in logs[1:]:
        for suffix in (".index", ".timeindex", ".timemap"):
            assert (tmp_path / "events-0" / name).with_suffix(suffix).stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tidelog-w")] == [TURN_FILE]


def test_leaving_without_commit_leaves_nothing(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / TURN_FILE).touch()
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with pytest.raises(RuntimeError), StagedWrite(tmp_path, CLOCK, writer="me") as one:
        one.begin(KEYS)
        one.append(KEYS[0], batch(0, 5))
        raise RuntimeError
    with StagedWrite(tmp_path, CLOCK, writer="me") as one:
        one.commit("nothing to commit")
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before
    assert not list(tmp_path.glob("*/tidelog-*"))


def test_who_holds_the_folder(tmp_path: Path) -> None:
    folder(tmp_path)
    with DirLock(tmp_path), pytest.raises(StorageError, match="running broker"), StagedWrite(tmp_path, CLOCK):
        pass
    with StagedWrite(tmp_path, CLOCK), pytest.raises(StorageError, match="using this folder"):
        LogManager(tmp_path, CLOCK).startup()


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    folder(tmp_path)
    with StagedWrite(tmp_path, CLOCK, writer="me") as one, ThreadPoolExecutor(3) as others:
        one.begin(KEYS)
        waiting = [others.submit(write, tmp_path, [10 + n, 20 + n]) for n in range(3)]
        for key in KEYS:
            one.append(key, batch(0, 5))
        assert not any(other.done() for other in waiting)
        one.commit()
        one.__exit__(None, None, None)
        for other in waiting:
            other.result(timeout=PATIENCE_S)
    found = times(tmp_path)[KEYS[1]]
    assert found[0] == 5
    assert sorted(zip(found[1::2], found[2::2], strict=True)) == [(10, 20), (11, 21), (12, 22)]


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataDirNotFoundError), StagedWrite(tmp_path / "no", CLOCK):
        pass
    folder(tmp_path)
    with (
        StagedWrite(tmp_path, CLOCK) as one,
        pytest.raises(UnknownTopicOrPartitionError, match="topic 'events' has no partition 7"),
    ):
        one.begin([TopicPartition("events", 7)])
    assert not is_pending(tmp_path)


def test_a_log_that_ends_inside_a_batch_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    path = tmp_path / "events-0" / names.file_name(0, ".log")
    path.write_bytes(path.read_bytes() + bytes(batch(0, 7)[: HEADER_BYTES + 3]))
    with StagedWrite(tmp_path, CLOCK) as one, pytest.raises(StorageError, match=r"ends inside a batch.*start a broker"):
        one.begin(KEYS)
    with LogManager(tmp_path, CLOCK):
        pass
    write(tmp_path, [5])
    assert times(tmp_path)[KEYS[0]] == [1000, 1001, 5]


BEFORE = {KEYS[0]: [1000, 1001], KEYS[1]: []}
AFTER = {KEYS[0]: [1000, 1001, 5, 6], KEYS[1]: [5, 6]}


def test_a_crash_at_any_point(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    with CrashStates(data, tmp_path / "states") as states:
        write(data, [5, 6], "note")
    assert times(data) == AFTER
    seen = []
    for state in states.folders:
        is_committed = (state / COMMITTED_FILE).exists() or (state / names_of_writers(data)).exists()
        # A reader sees all or nothing, at any time, or has a checkpoint that is not there yet.
        assert times(state) in (BEFORE, AFTER)
        recovered = Path(shutil.copytree(state, tmp_path / "recovered" / state.parent.name))
        with StagedWrite(recovered, CLOCK, writer="me") as one:
            assert one.note == ("note" if is_committed else None)
        assert times(recovered) == (AFTER if is_committed else BEFORE)
        assert not is_pending(recovered)
        assert not list(recovered.glob("*/tidelog-*"))
        seen.append(is_committed)
        if len(seen) % 5:
            continue
        with LogManager(state, CLOCK) as manager:
            assert manager.offline_partitions() == {}
            assert manager.log("events", 1).log_end_offset == (2 if is_committed else 0)
        assert times(state) == (AFTER if is_committed else BEFORE)
    assert set(seen) == {True, False}


def names_of_writers(directory: Path) -> str:
    (path,) = directory.glob("tidelog-writer-*.json")
    return path.name


def test_a_crash_while_a_crash_is_recovered_from(tmp_path: Path) -> None:
    data = folder(tmp_path / "data")
    with CrashStates(data, tmp_path / "states") as states:
        write(data, [5, 6], "note")
    half_done = [state for state in states.folders if is_pending(state)]
    for state in half_done[:: max(1, len(half_done) // 4)]:
        is_committed = (state / COMMITTED_FILE).exists()
        with CrashStates(state, tmp_path / "again" / state.parent.name) as again:
            recover(state)
        for second in again.folders:
            recover(second)
            assert times(second) == (AFTER if is_committed else BEFORE)


def test_a_kafka_that_appends_in_between(tmp_path: Path) -> None:
    """Kafka opens what is half moved, and appends: what was still staged goes after, and nothing is lost or there twice."""
    data = folder(tmp_path / "data")
    with CrashStates(data, tmp_path / "states") as states:
        write(data, [5, 6], "note")
    committed = [state for state in states.folders if (state / COMMITTED_FILE).exists()]
    assert len(committed) > 8
    for state in committed[1::3]:
        append_as_kafka(state)
        recover(state)
        assert_all_is_there_once(state)
    append_as_kafka(committed[0])
    with CrashStates(committed[0], tmp_path / "again") as again:
        recover(committed[0])
    for state in again.folders[::2]:
        recover(state)
        assert_all_is_there_once(state)


def append_as_kafka(directory: Path) -> None:
    config = LogConfig.from_properties(SMALL_INDEXES)
    for key in KEYS:
        log = load(directory / names.log_dir_name(*key), config, CLOCK, Scheduler(CLOCK), had_clean_shutdown=False)
        log.append_as_leader(batch(0, 77), 0)
        log.close()


def recover(directory: Path) -> None:
    with DirLock(directory):
        finish_interrupted_writes(directory, CLOCK)
    assert not is_pending(directory)


def assert_all_is_there_once(directory: Path) -> None:
    found = times(directory)
    assert sorted(found[KEYS[0]]) == [5, 6, 77, 1000, 1001]
    assert sorted(found[KEYS[1]]) == [5, 6, 77]
    assert [time for time in found[KEYS[0]] if time in (5, 6)] == [5, 6]


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        '{"version": 1, "writer": "me", "note": 5, "partitions": ["events-0"]}',
        '{"version": 1, "writer": 5, "note": "x", "partitions": ["events-0"]}',
        '{"version": 1, "writer": "me", "note": "x", "partitions": [5]}',
    ],
)
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_damaged_file_is_one_error(tmp_path: Path, text: str, is_committed: bool) -> None:
    path = folder(tmp_path) / COMMITTED_FILE if is_committed else writer_file(folder(tmp_path), "me")
    path.write_text(text)
    with (
        pytest.raises(CorruptCheckpointError, match=r"a write's journal (is not JSON|has unexpected content)"),
        StagedWrite(tmp_path, CLOCK, writer="me") as one,
    ):
        raise AssertionError(one.note)
    assert path.read_text() == text
