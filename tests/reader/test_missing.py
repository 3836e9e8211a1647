"""What a folder lacks: each segment and partition of what Kafka wrote is taken away in turn, and nothing else is noted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.fields import check_fields
from tests.reader.golden import GOLDEN
from tidelog.errors import DataDirNotFoundError, UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.dir_lock import DirLock
from tidelog.model import METADATA_TOPIC
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing import missing_offsets as missing_module
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.time_map_file import write_time_map
from tidelog.records.batch import iter_headers

RELEASES = ("kafka-2.4.1", "kafka-3.9.1")
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def missing(folder: Path) -> list[MissingOffsets]:
    log_dir = LogDir(folder)
    keys = [(topic, partition) for topic, partitions in log_dir.topics().items() for partition in partitions]
    return [*log_dir.missing_partitions(), *(one for key in keys for one in log_dir.log(*key).missing())]


def bounds(folder: Path) -> list[tuple[int, int, str]]:
    return [(one.first_offset, one.end_offset, one.kind) for one in missing(folder)]


def bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def one_partition(release: str, name: str, target: Path) -> Path:
    """Copy a golden partition with its folder's checkpoints; return the data folder."""
    source = GOLDEN / release / "log"
    shutil.copytree(source / name, target / name)
    topic, partition = names.parse_topic_partition_name(name)
    for path in source.glob("*-checkpoint"):
        lines = [line for line in path.read_text().splitlines() if line.startswith(f"{topic} {partition} ")]
        (target / path.name).write_text("".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)))
    return target


def take_away(partition: Path, base: int, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    for suffix in suffixes:
        (partition / names.file_name(base, suffix)).unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["log", "live"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_kafka_wrote_is_whole(release: str, kind: str) -> None:
    folder = GOLDEN / release / kind
    assert missing(folder) == []
    for partition in folder.iterdir():
        if partition.is_dir():  # A copy without the checkpoints says as little.
            assert Log.open(partition).missing() == []


SEGMENTS = [
    pytest.param(release, partition.name, at, id=f"{release}-{partition.name}-{at}")
    for release in RELEASES
    for partition in sorted((GOLDEN / release / "log").iterdir())
    if partition.is_dir()
    for at in range(len(bases(partition)))
]


@pytest.mark.parametrize(("release", "name", "at"), SEGMENTS)
def test_a_segment_taken_away(release: str, name: str, at: int, tmp_path: Path) -> None:
    folder = one_partition(release, name, tmp_path)
    partition = folder / name
    found, end = bases(partition), LogDir(folder).log(*names.parse_topic_partition_name(name)).log_end_offset
    start = LogDir(folder).log(*names.parse_topic_partition_name(name)).log_start_offset
    take_away(partition, found[at])
    last = [*found, end][at + 1]
    if not any(partition.glob("*.log")) and not (partition / names.PARTITION_METADATA).exists():
        with pytest.raises(DataDirNotFoundError, match=f"checkpoints name 1: {name}"):
            LogDir(folder)
        return
    if len(found) == 1 and end == 0:
        assert bounds(folder) == []  # Nothing was in it.
        return
    if len(found) == 1:
        assert bounds(folder) == [(start, end, "end")]
    elif at == len(found) - 1:
        assert bounds(folder) == ([(max(start, found[at]), end, "end")] if found[at] < end else [])
    elif name.startswith("compacted") and at:
        assert bounds(folder) == []  # So it would be if the cleaner had taken all of it.
    elif at == 0:
        expected = [(max(start, found[0]), found[1], "head")] if first_epoch(partition) in (found[0], start) else []
        assert bounds(folder) == ([] if last <= start else expected)
    else:
        (one,) = missing(folder)
        assert (one.first_offset, one.end_offset, one.kind) == (found[at], last, "segment")
        assert METADATA_TOPIC not in str(one)


def first_epoch(partition: Path) -> int | None:
    path = partition / names.LEADER_EPOCH_CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return int(lines[0].split()[1]) if lines else None


@pytest.mark.parametrize(("release", "name", "at"), SEGMENTS)
def test_only_the_log_of_a_segment_taken_away(release: str, name: str, at: int, tmp_path: Path) -> None:
    folder = one_partition(release, name, tmp_path)
    partition = folder / name
    topic = names.parse_topic_partition_name(name)
    if not (partition / names.PARTITION_METADATA).exists() and len(bases(partition)) == 1:
        return  # As above.
    found, end, start = bases(partition), LogDir(folder).log(*topic).log_end_offset, LogDir(folder).log(*topic).log_start_offset
    take_away(partition, found[at], (".log",))
    last = [*found, end][at + 1]
    if last <= start or (found[at] == end and not (partition / names.file_name(found[at], ".index")).exists()):
        return
    assert [(first, behind) for first, behind, _ in bounds(folder)] == [(max(start, found[at]), max(last, found[at] + 1))]


def test_times_are_those_of_the_neighbours(tmp_path: Path) -> None:
    folder = one_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    log = LogDir(folder).log("v2-none-ct", 0)
    before, taken, behind = log.segments[0], log.segments[1], log.segments[2]
    previous, following = before.valid_end().last_header, next(behind.headers())
    take_away(folder / "v2-none-ct-0", taken.base_offset)
    (one,) = missing(folder)
    assert previous is not None
    assert (one.previous_timestamp, one.next_timestamp) == (previous.max_timestamp, following.max_timestamp)


@pytest.mark.parametrize("topic", ["two-partitions", "empty", "compacted", "deleted-prefix"])
def test_a_partition_taken_away(topic: str, tmp_path: Path) -> None:
    folder = shutil.copytree(GOLDEN / "kafka-3.9.1" / "log", tmp_path / "log")
    end = LogDir(folder).log(topic, 0).log_end_offset
    start = 333 if topic == "deleted-prefix" else 0
    shutil.rmtree(folder / f"{topic}-0")
    (one,) = missing(folder)
    check_fields(one, topic=topic, partition=0, first_offset=start, end_offset=end, kind="partition")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"it is missing|no topic|1 partition is missing"):
        LogDir(folder).log(topic, 0)


@pytest.mark.parametrize("suffix", ["delete", "stray", "future"])
def test_a_partition_on_its_way_is_not_missing(suffix: str, tmp_path: Path) -> None:
    folder = shutil.copytree(GOLDEN / "kafka-3.9.1" / "log", tmp_path / "log")
    (folder / "empty-0").rename(folder / f"empty-0.0123456789abcdef0123456789abcdef-{suffix}")
    assert missing(folder) == []


def test_a_high_watermark_alone_names_a_partition_if_it_is_later(tmp_path: Path) -> None:
    folder = one_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    (folder / names.HIGH_WATERMARK_CHECKPOINT).write_text("0\n2\nv2-none-ct 0 900\ngone 3 70\n")
    assert [str(one).split(":")[0] for one in missing(folder)] == ["gone-3"]
    recovery_points = folder / names.RECOVERY_POINT_CHECKPOINT
    recovery_points.write_bytes(recovery_points.read_bytes())
    later = (folder / names.HIGH_WATERMARK_CHECKPOINT).stat().st_mtime_ns + 10**9
    os.utime(recovery_points, ns=(later, later))
    assert missing(folder) == []  # Kafka rewrote the recovery points when it deleted the partition.


@pytest.mark.parametrize("ending", [".deleted", ".swap", ".cleaned"])
def test_a_log_that_is_being_renamed_is_no_loss(ending: str, tmp_path: Path) -> None:
    """The owner renames the .log first, and then the files beside it."""
    folder = one_partition("kafka-3.9.1", "deleted-prefix-0", tmp_path)
    partition = folder / "deleted-prefix-0"
    take_away(partition, 484, (".log",))
    assert [one.kind for one in missing(folder)] == ["end"]
    (folder / names.RECOVERY_POINT_CHECKPOINT).unlink()
    (folder / names.HIGH_WATERMARK_CHECKPOINT).unlink()
    take_away(partition, 600, (".snapshot",))
    assert bounds(folder) == [(484, 485, "end")]
    (partition / names.file_name(484, f".log{ending}")).touch()
    assert bounds(folder) == [] or ending == ".swap"


def test_a_head_that_goes_before_its_epochs_are_written(tmp_path: Path) -> None:
    """Kafka 3.9 renames the segments, and writes the epochs a moment later."""
    folder = one_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    partition = folder / "v2-none-ct-0"
    for suffix in SUFFIXES:
        path = partition / names.file_name(0, suffix)
        if path.exists():
            path.rename(f"{path}.deleted")
    assert missing(folder) == []


def test_gaps_of_a_compacted_log_are_known_without_its_checkpoint(tmp_path: Path) -> None:
    folder = one_partition("kafka-3.9.1", "compacted-0", tmp_path)
    (folder / names.CLEANER_CHECKPOINT).unlink()
    assert missing(folder) == []


def test_a_segment_of_a_compacted_log_that_lost_its_end(tmp_path: Path) -> None:
    """A hole is no news there; that an index reports more is. A map may be of before the compaction."""
    for kept in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        folder = one_partition("kafka-3.9.1", "compacted-0", tmp_path / kept)
        log = folder / "compacted-0" / names.file_name(bases(folder / "compacted-0")[0], names.LOG_SUFFIX)
        assert write_time_map(log) is not None
        os.truncate(log, next(iter_headers(log.read_bytes())).end_position)
        ((_, end, kind),) = bounds(folder)
        assert (end, kind) == (bases(folder / "compacted-0")[1], "segment")
        for suffix in {names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX} - {kept}:
            log.with_suffix(suffix).unlink()
        assert [found[1:] for found in bounds(folder)] == [(end, kind)], kept
        log.with_suffix(kept).unlink()
        assert bounds(folder) == []


def test_an_index_of_what_a_cleaner_swapped_in_says_nothing_of_the_log_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = one_partition("kafka-3.9.1", "compacted-0", tmp_path)
    log = folder / "compacted-0" / names.file_name(bases(folder / "compacted-0")[0], names.LOG_SUFFIX)
    whole = log.read_bytes()
    os.truncate(log, next(iter_headers(whole)).end_position)
    assert [found[2] for found in bounds(folder)] == ["segment"]
    last_indexed = missing_module._last_indexed

    def swapped_then_indexed(path: Path, base_offset: int, end_position: int) -> int:
        if path == log.with_suffix(names.INDEX_SUFFIX):
            fresh = log.with_suffix(".swap")
            fresh.write_bytes(whole)
            fresh.rename(log)
        return last_indexed(path, base_offset, end_position)

    monkeypatch.setattr(missing_module, "_last_indexed", swapped_then_indexed)
    log.with_suffix(names.TIME_INDEX_SUFFIX).unlink()
    assert bounds(folder) == []


@pytest.mark.parametrize(("start", "end", "is_noted"), [(0, 10, False), (0, None, True), (400, None, False), (150, 400, True)])
def test_only_what_is_asked_for_counts(start: int, end: int | None, is_noted: bool, tmp_path: Path) -> None:
    folder = one_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    partition = folder / "v2-none-ct-0"
    first, second = bases(partition)[1:3]
    assert 10 < first < 400
    take_away(partition, first)
    assert second <= 400
    assert bool(LogDir(folder).log("v2-none-ct", 0).missing(start, end)) is is_noted


def test_a_head_whose_removal_ends_during_the_look_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka removes segments' files, and writes where the epochs begin now, each a moment after it has left them out."""
    folder = one_partition("kafka-3.9.1", "two-partitions-0", tmp_path)
    partition = folder / "two-partitions-0"
    take_away(partition, 0)
    (first, *_) = bases(partition)
    assert bounds(folder) == [(0, first, "head")]
    epochs = partition / "leader-epoch-checkpoint"

    def removed_now(directory: Path, first_base_offset: int) -> bool:
        epochs.write_text(f"0\n1\n0 {first_base_offset}\n")
        return False

    monkeypatch.setattr(missing_module, "_is_losing_its_head", removed_now)
    assert bounds(folder) == []


def test_a_running_broker_may_write_the_epochs_after_its_files_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `file.delete.delay.ms=0` Kafka leaves nothing that waits for its removal; without an owner nobody is waited for."""
    folder = one_partition("kafka-3.9.1", "two-partitions-0", tmp_path)
    partition = folder / "two-partitions-0"
    take_away(partition, 0)
    (first, *_) = bases(partition)
    looks: list[Path] = []

    def is_locked(directory: Path) -> bool:
        looks.append(directory)
        if len(looks) == 3:
            (partition / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {first}\n")
        return is_owned

    monkeypatch.setattr(missing_module, "is_locked", is_locked)
    is_owned = False
    assert bounds(folder) == [(0, first, "head")]
    is_owned = True
    assert bounds(folder) == []
    assert set(looks) == {folder}


def test_what_a_running_broker_really_lost_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = one_partition("kafka-3.9.1", "two-partitions-0", tmp_path)
    take_away(folder / "two-partitions-0", 0)
    monkeypatch.setattr(missing_module, "_OWNER_S", 0.05)
    with DirLock(folder):
        assert bounds(folder) == [(0, bases(folder / "two-partitions-0")[0], "head")]


CONFIRMING = (names.CLEAN_SHUTDOWN_FILE, names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT)


@pytest.mark.parametrize("taken", [None, *CONFIRMING])
@pytest.mark.parametrize(
    "name", ["00000000000000005000.snapshot", "00000000000000005000.timeindex", "00000000000000005000.index"]
)
def test_files_of_another_log_after_a_clean_end(
    name: str, taken: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What proves a lost end proves nothing where the broker ended cleanly, and both checkpoints are the end."""
    folder = one_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    (folder / names.CLEAN_SHUTDOWN_FILE).touch()
    partition = folder / "v2-none-ct-0"
    shutil.copy(max(partition.glob(f"*.{name.rpartition('.')[2]}")), partition / name)
    if taken is not None:
        (folder / taken).unlink()
    with LogDir(folder).log("v2-none-ct", 0) as log:
        found = log.missing()
    assert [(one.first_offset, one.kind) for one in found] == ([] if taken is None else [(900, "end")])
    assert (f"{name}: belongs to a different log" in caplog.text) == (taken is None)


def test_a_lost_end_after_a_clean_end_is_missing(tmp_path: Path) -> None:
    """With a checkpoint that is damaged, the other one tells."""
    for number in (None, names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        folder = one_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path / str(number))
        (folder / names.CLEAN_SHUTDOWN_FILE).touch()
        take_away(folder / "v2-none-ct-0", max(bases(folder / "v2-none-ct-0")), (".log",))
        if number is not None:
            (folder / number).write_text(f"0\n1\nv2-none-ct 0 {max(bases(folder / 'v2-none-ct-0'))}\n")
        with LogDir(folder).log("v2-none-ct", 0) as log:
            assert [(one.end_offset >= 900, one.kind) for one in log.missing()] == [(True, "end")]
