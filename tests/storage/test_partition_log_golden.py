"""What Apache Kafka 3.9.1 wrote, appended again: as a follower, batch by batch and many at once, and as the leader it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.clock import ManualClock
from tidelog.config import LogConfig
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, BatchHeader, iter_headers
from tidelog.records.patch import set_base_offset_and_epoch, set_max_timestamp
from tidelog.records.records import iter_records
from tidelog.records.validation import AppendOrigin
from tidelog.storage.loading.loader import load
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.scheduler import Scheduler

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-3.9.1" / "log"
GOLDEN_PROPERTIES = {"segment.bytes": 16384, "index.interval.bytes": 512, "segment.index.bytes": 1200, "retention.ms": -1}
# Kafka's own topics have settings of their own.
INTERNAL_PROPERTIES = {"segment.bytes": 100 << 20, "retention.ms": -1}

METADATA = "partition.metadata"
PARTITIONS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name != "compacted-0")
# Kafka's own topics were written with settings that nothing here says.
LEADER_PARTITIONS = [name for name in PARTITIONS if not name.startswith("__")]


def kafkas_files(name: str) -> dict[str, Path]:
    """Files by the names that they were written under: DeleteRecords has renamed some to `.deleted`."""
    return {path.name.removesuffix(".deleted"): path for path in (GOLDEN / name).iterdir()}


def batches(files: dict[str, Path]) -> Iterator[tuple[BatchHeader, bytearray]]:
    for name in sorted(name for name in files if name.endswith(".log")):
        data = files[name].read_bytes()
        for header in iter_headers(data):
            yield header, bytearray(data[header.position : header.end_position])


def new_log(name: str, files: dict[str, Path], directory: Path, clock: ManualClock, **properties: str) -> PartitionLog:
    base = INTERNAL_PROPERTIES if name.startswith("__") else GOLDEN_PROPERTIES
    folder = directory / name
    folder.mkdir()
    first = min(int(name[:20]) for name in files if name.endswith(".log"))
    return load(
        folder,
        LogConfig.from_properties({**base, **properties}),
        clock,
        Scheduler(clock),
        had_clean_shutdown=True,
        log_start_offset=first,
        topic_id=read_topic_id(files[METADATA]),
    )


def assert_same_files(name: str, log: PartitionLog, kafkas: dict[str, Path]) -> None:
    log.flush(force_active=True)
    log.close()
    ours = {path.name: path for path in log.directory.iterdir()}
    assert sorted(ours) == sorted(kafkas)
    for file, path in sorted(kafkas.items()):
        if file.endswith(".snapshot"):
            # The order of entries is that of Java's hash map.
            assert sorted(read_snapshot(ours[file])) == sorted(read_snapshot(path)), file
            assert ours[file].stat().st_size == path.stat().st_size, file
        elif file != "leader-epoch-checkpoint" or name != "deleted-prefix-0":
            # DeleteRecords has moved the epoch's start to the new log start.
            assert ours[file].read_bytes() == path.read_bytes(), file


@pytest.mark.parametrize("name", PARTITIONS)
def test_as_a_follower(name: str, tmp_path: Path) -> None:
    kafkas = kafkas_files(name)
    log = new_log(name, kafkas, tmp_path, ManualClock(0))
    log.maybe_assign_epoch_start_offset(0, log.log_end_offset)
    for _, data in batches(kafkas):
        log.append_as_follower(data, 10)
    assert_same_files(name, log, kafkas)


@pytest.mark.parametrize("name", LEADER_PARTITIONS)
def test_as_the_leader(name: str, tmp_path: Path) -> None:
    """Offsets, epochs and append times are taken away from the batches first, and must come out the same."""
    kafkas = kafkas_files(name)
    clock = ManualClock(0)
    by_append = any(header.timestamp_type == LOG_APPEND_TIME for header, _ in batches(kafkas))
    log = new_log(name, kafkas, tmp_path, clock, **({"message.timestamp.type": "LogAppendTime"} if by_append else {}))
    log.maybe_assign_epoch_start_offset(0, log.log_end_offset)
    for header, data in batches(kafkas):
        if by_append:
            clock.advance(header.max_timestamp - clock.now_ms())
        origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
        info = log.append_as_leader(as_sent(header, data), header.leader_epoch, origin=origin)
        assert (info.first_offset, info.last_offset) == (header.base_offset, header.last_offset)
        assert info.log_append_time == (header.max_timestamp if by_append else -1)
    assert_same_files(name, log, kafkas)


def as_sent(header: BatchHeader, data: bytearray) -> bytearray:
    """Undo what the broker has changed in a producer's batch."""
    set_base_offset_and_epoch(data, 0, -1)
    if header.timestamp_type == LOG_APPEND_TIME:
        set_max_timestamp(data, CREATE_TIME, 0)
        sent = next(iter_headers(data))
        set_max_timestamp(data, CREATE_TIME, max(record.timestamp for record in iter_records(sent, data)))
    return data


@pytest.mark.parametrize(("first", "last"), [(1, 132), (353, 494), (742, 776), (815, 900)])
def test_same_rolls_by_time_as_kafka(first: int, last: int, tmp_path: Path) -> None:
    """Spec §4.1 b. Before the cleaner came, this topic rolled by segment.ms = 1000 of event time.

    The runs of segments that nobody has cleaned yet are still there, as `.deleted`; offset 0 and what is between the runs is the
    cleaner's work.
    """
    kafkas = kafkas_files("compacted-0")
    run = {file: path for file, path in kafkas.items() if file[:20].isdigit() and first <= int(file[:20]) <= last}
    log = new_log("compacted-0", {**run, METADATA: kafkas[METADATA]}, tmp_path, ManualClock(0), **{"segment.ms": "1000"})
    for _, data in batches(run):
        log.append_as_follower(data)
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        files = sorted(file for file in run if file.endswith(suffix))
        assert sorted(path.name for path in log.directory.iterdir() if path.suffix == suffix) == files
        for file in files:
            assert (log.directory / file).read_bytes() == run[file].read_bytes(), file


@pytest.mark.parametrize("name", ["v2-lz4-ct-0", "transactions-0", "idempotent-0"])
def test_many_batches_at_once_are_the_same_to_the_indexes(name: str, tmp_path: Path) -> None:
    """KAFKA-806; in one segment, as rolls come between appends."""
    kafkas = kafkas_files(name)
    sent = [bytes(data) for _, data in batches(kafkas)]
    folders = []
    for kind, appends in (("at-once", [b"".join(sent)]), ("one-by-one", sent)):
        (tmp_path / kind).mkdir()
        wide = {"segment.bytes": str(1 << 30), "segment.index.bytes": "1000000", "segment.ms": str(1 << 60)}
        log = new_log(name, kafkas, tmp_path / kind, ManualClock(0), **wide)
        for data in appends:
            log.append_as_follower(data)
        log.flush(force_active=True)
        log.close()
        folders.append({path.name: path.read_bytes() for path in log.directory.iterdir()})
    assert folders[0] == folders[1]


def test_there_is_something_to_compare() -> None:
    assert len(PARTITIONS) == 20
    assert any("lat" in name for name in LEADER_PARTITIONS)
