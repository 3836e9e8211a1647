"""All that writes segments leaves time maps beside them, bound to the files as they stay: a scan then compares nothing."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tests.storage.managers import managed
from tests.storage.partition_logs import NOW_MS, batch
from tidelog.check.folder_indexes import RebuildOptions, rebuild_partitions
from tidelog.check.migration.folder_migration import begin, finish, index_transactions, transactions_to_index
from tidelog.check.migration.segment_migration import migrate_segment
from tidelog.check.partitions import partitions_to_verify
from tidelog.clock import ManualClock
from tidelog.formats.files import ReadOnlyFile
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import write_topic_id
from tidelog.ingest.importer import ImportOptions, import_file
from tidelog.model import METADATA_TOPIC, TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.reader.segment import Segment
from tidelog.reader.time_map_file import is_bound, read_time_map, time_map_path
from tidelog.sources.plan import plan
from tidelog.storage.folder.staged_write import StagedWrite
from tidelog.storage.handover import place

CLOCK = ManualClock(NOW_MS)
KEY = TopicPartition("t", 0)


def check_mapped(folder: Path) -> None:
    """Each segment of a topic that holds batches has a map that covers it, and is bound to it."""
    logs = [log for log in sorted(folder.glob("*-[0-9]*/*.log")) if log.stat().st_size]
    logs = [log for log in logs if log.parent.name != f"{METADATA_TOPIC}-0"]
    assert logs
    for log in logs:
        found = read_time_map(time_map_path(log))
        assert found is not None, log
        segment = Segment.open(log)
        assert found.covered_bytes == segment.end_position, log
        segment.close()
        with ReadOnlyFile(log) as file:
            assert is_bound(found, file), log


def planned_share(folder: Path, start_ms: int, end_ms: int) -> float:
    found = plan(folder, "t", start=start_ms, end=end_ms)
    return found.size_bytes / sum(one.size_bytes for one in found.partitions)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the engine leaves: rolled and compacted segments, and last ones."""
    folder = tmp_path / "data"
    clock = ManualClock(NOW_MS)
    with managed(folder, clock) as manager:
        manager.create_topic("t", 2, {"segment.bytes": 1000})
        manager.create_topic("compacted", 1, {"segment.bytes": 1000, "cleanup.policy": "compact"})
        for key in manager.partitions():
            for n in range(60):
                manager.log(*key).append_as_leader(batch(timestamp=NOW_MS + n, key=b"key %d" % (n % 5)), 0)
            manager.log(*key).update_high_watermark(60)
        for _ in range(40):
            clock.advance(15_000)
            manager.tick()
    return folder


def test_the_engine(folder: Path) -> None:
    check_mapped(folder)
    with managed(folder) as manager:
        check_mapped(folder)
        log = manager.log("t", 0)
        log.append_as_leader(batch(timestamp=NOW_MS + 100), 0)
        manager.log("t", 1).truncate_to(30)
        manager.log("t", 1).append_as_leader(batch(timestamp=NOW_MS + 100), 0)
    check_mapped(folder)


def test_rebuilding_in_a_copy(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(AssertionError):
        check_mapped(copy)
    keys = [KEY, TopicPartition("t", 1), TopicPartition("compacted", 0)]
    assert len(list(rebuild_partitions(partitions_to_verify(LogDir(copy), keys), RebuildOptions()))) == 3
    check_mapped(copy)


def test_import(tmp_path: Path) -> None:
    csv = tmp_path / "rows.csv"
    rows = 40_000
    csv.write_text("time,value\n" + "".join(f"{NOW_MS + 1000 * n},{'x' * 60} {n}\n" for n in range(rows)))
    options = ImportOptions(timestamp_column="time", partitions=2, properties={"segment.bytes": "1500000"})
    import_file(tmp_path / "data", "t", csv, options, CLOCK)
    check_mapped(tmp_path / "data")
    start = NOW_MS + 1000 * rows // 4
    assert planned_share(tmp_path / "data", start, start + 10 * rows) < 0.06
    for found in (tmp_path / "data").rglob("*.timemap"):
        found.unlink()
    assert planned_share(tmp_path / "data", start, start + 10 * rows) > 0.7


def test_writes_of_a_sink(folder: Path) -> None:
    """However small: a range meets few of them."""
    for n in range(50):
        with StagedWrite(folder, CLOCK, writer="sink") as write:
            write.begin([KEY])
            write.append(KEY, batch(timestamp=NOW_MS + 1_000_000 * n, value=b"x" * 900))
            write.commit(str(n))
    check_mapped(folder)
    assert planned_share(folder, NOW_MS + 20_000_000, NOW_MS + 20_000_001) < 0.05


def test_migration(folder: Path, tmp_path: Path) -> None:
    migration = begin(folder, tmp_path / "new")
    done = [migrate_segment(task) for task in migration.segments]
    for task in transactions_to_index(migration, done):
        index_transactions(task)
    finish(migration, done, CLOCK)
    check_mapped(tmp_path / "new")


@pytest.mark.parametrize("epoch", [0, 3])
def test_handover(folder: Path, tmp_path: Path, epoch: int) -> None:
    kafkas = tmp_path / "kafka"
    topic_id = uuid.uuid4()
    with managed(folder) as manager:
        manager.log("t", 1).append_as_leader(batch(timestamp=NOW_MS), epoch)
    time_map_path(next((folder / "t-0").glob("*.log"))).unlink()
    for number in range(2):
        there = kafkas / f"t-{number}"
        there.mkdir(parents=True)
        (there / f"{0:020}.log").touch()
        write_topic_id(there / "partition.metadata", topic_id)
        LeaderEpochs([EpochEntry(0, 0)]).write(there / "leader-epoch-checkpoint")
    place(folder, kafkas, {"t": topic_id})
    check_mapped(kafkas)
