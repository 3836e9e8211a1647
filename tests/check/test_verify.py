"""`tidelog verify`: what brokers and our engine leave is clean; each file taken away, and each kind of damage, is found."""

from __future__ import annotations

import random
import re
import shutil
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import run
from tests.reader.golden import GOLDEN
from tests.reader.test_missing import one_partition
from tests.storage.managers import die, started
from tests.storage.partition_logs import NOW_MS, batch
from tidelog.check.expected_partitions import Owner, expected_partitions, strangers
from tidelog.check.folder_verify import FolderReport, verify_folder
from tidelog.check.partition_rules import SnapshotFacts, checkpoint_faults, epoch_faults, missing_snapshots
from tidelog.clock import ManualClock
from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.formats import names
from tidelog.formats.dir_lock import DirLock, is_locked
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import read_topic_id
from tidelog.ingest.importer import ImportOptions, import_file
from tidelog.metadata import records as r
from tidelog.metadata.batches import build_batch
from tidelog.metadata.frame import encode_record
from tidelog.metadata.image import MetadataImage
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.records.batch import compute_crc, iter_headers
from tidelog.storage.log_manager import LogManager

RELEASES = ("kafka-2.4.1", "kafka-3.9.1")
NOT_TOLD = {".kafka_cleanshutdown", "cleaner-offset-checkpoint"}
"""Without the one, a folder is as after a crash; without the other, nothing was compacted."""


def faults(folder: Path) -> list[str]:
    return said(verify_folder(folder))


def said(report: FolderReport) -> list[str]:
    return [str(finding) for finding in report.all_findings() if finding.is_fault]


@pytest.mark.parametrize("kind", ["log", "live"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_kafka_wrote_is_whole_and_sound(release: str, kind: str) -> None:
    assert faults(GOLDEN / release / kind) == []


def test_what_the_first_releases_wrote_is_whole_and_sound() -> None:
    """Before 0.10.1 there were no time indexes, before 0.11 no log-start-offset-checkpoint."""
    report = verify_folder(GOLDEN / "kafka-0.10.0.1" / "log")
    assert said(report) == []
    noted = [str(finding) for finding in report.all_findings()]
    assert sum("there are no time indexes" in one for one in noted) == len(report.partitions)
    assert sum("log-start-offset-checkpoint: is missing" in one for one in noted) == 1


def test_a_batch_that_was_written_wrong_is_found(tmp_path: Path) -> None:
    """Its checksum is right, and `cat` ends with an error."""
    folder = tmp_path / "log"
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "log", folder)
    for name, at in (("v2-gzip-ct-0", 75), ("v2-none-ct-0", 61)):
        path = min((folder / name).glob("*.log"))
        data, header = bytearray(path.read_bytes()), next(iter_headers(path.read_bytes()))
        data[at] ^= 0xFF
        data[17:21] = compute_crc(2, bytes(data[: header.size])).to_bytes(4, "big")
        path.write_bytes(data)
    found = [line for line in faults(folder) if re.search(r"\.log byte (0|61): ", line)]
    assert len(found) == 2, faults(folder)
    assert any("a gzip block is damaged" in line for line in found)
    assert any("invalid record" in line for line in found)


def test_a_new_folder_is_whole_from_its_first_moment(tmp_path: Path) -> None:
    manager = started(tmp_path, ManualClock(NOW_MS))
    manager.create_topic("t", 1)
    assert faults(tmp_path) == []
    manager.checkpoint_high_watermarks()
    die(manager)
    assert faults(tmp_path) == []


def test_what_is_imported_is_whole_before_and_after_it_is_served(tmp_path: Path) -> None:
    csv = tmp_path / "rows.csv"
    csv.write_text("time,value\n" + "".join(f"{NOW_MS + n},{'x' * 60}\n" for n in range(3000)))
    folder = tmp_path / "data"
    options = ImportOptions(timestamp_column="time", partitions=3, properties={"segment.bytes": "50000"})
    import_file(folder, "t", csv, options, ManualClock(NOW_MS))
    assert faults(folder) == []
    taken = shutil.copytree(folder, tmp_path / "taken")
    shutil.rmtree(taken / "t-1")
    (fault,) = faults(taken)
    assert fault.startswith("t-1: offsets [0, 1000)")
    die(started(folder, ManualClock(NOW_MS)))
    assert faults(folder) == []
    with LogManager(folder, ManualClock(NOW_MS)):
        pass
    assert faults(folder) == []


def closed_partition(release: str, name: str, target: Path) -> Path:
    folder = one_partition(release, name, target)
    for other in (".kafka_cleanshutdown", "meta.properties"):
        shutil.copy(GOLDEN / release / "log" / other, folder / other)
    return folder


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("kafka-3.9.1", "v2-none-ct-0"),
        ("kafka-3.9.1", "transactions-0"),
        ("kafka-3.9.1", "compacted-0"),
        ("kafka-3.9.1", "deleted-prefix-0"),
        ("kafka-2.4.1", "migrated-v0-v1-v2-0"),
    ],
)
def test_each_file_taken_away(release: str, name: str, tmp_path: Path) -> None:
    folder = closed_partition(release, name, tmp_path)
    assert faults(folder) == []
    first = min((folder / name).glob("*.log")).stem
    silent = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".deleted"):
        data = path.read_bytes()
        path.unlink()
        if not faults(folder):
            silent.append(path)
        path.write_bytes(data)
    silent = [path for path in silent if path.name not in NOT_TOLD]
    # The state of producers before the first segment is of use to nobody; 2.4 keeps the newest snapshots only.
    assert {path.suffix for path in silent} <= {".snapshot"}
    assert [path.stem for path in silent] == ([first] if name.startswith("deleted") else [p.stem for p in silent][:1])
    if release == "kafka-3.9.1" and not name.startswith("deleted"):
        assert silent == []


def test_a_broker_that_was_killed_while_it_rolled(tmp_path: Path) -> None:
    """Kafka creates a segment, then the snapshot of its producers. The next start writes the one that is missing."""
    folder = closed_partition("kafka-3.9.1", "transactions-0", tmp_path)
    (folder / ".kafka_cleanshutdown").unlink()
    newest, older = (folder / "transactions-0" / f"{base:020}.snapshot" for base in (173, 169))
    newest.unlink()
    report = verify_folder(folder)
    assert said(report) == []
    assert [str(one) for one in report.all_findings() if "the next start writes it" in str(one) and newest.name in str(one)]
    older.unlink()
    assert [older.name in text for text in faults(folder)] == [True]


@pytest.mark.parametrize("name", ["v2-none-ct-0", "compacted-0", "transactions-0"])
def test_a_flipped_bit_in_each_small_file(name: str, tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", name, tmp_path)
    for path in [*folder.glob(f"{name}/*.snapshot"), *folder.glob(f"{name}/*.log")]:
        data = path.read_bytes()
        if len(data) > 30:
            path.write_bytes(data[:25] + bytes([data[25] ^ 4]) + data[26:])
            assert faults(folder), path
            path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (names.RECOVERY_POINT_CHECKPOINT, "0\n1\nv2-none-ct 0 901\n"),
        (names.RECOVERY_POINT_CHECKPOINT, "0\n1\nv2-none-ct 0 899\n"),
        (names.RECOVERY_POINT_CHECKPOINT, "0\n0\n"),
        (names.RECOVERY_POINT_CHECKPOINT, "0\n2\nv2-none-ct 0 900\n"),
        (names.HIGH_WATERMARK_CHECKPOINT, "0\n1\nv2-none-ct 0 901\n"),
        (names.HIGH_WATERMARK_CHECKPOINT, "nonsense\n"),
        (names.LOG_START_OFFSET_CHECKPOINT, "0\n1\nv2-none-ct 0 1000\n"),
        (names.CLEANER_CHECKPOINT, "0\n1\nv2-none-ct 0 1000\n"),
        (names.CLEANER_CHECKPOINT, "0\n1\nnobody 0 10\n"),
        (f"v2-none-ct-0/{names.LEADER_EPOCH_CHECKPOINT}", "0\n0\n"),
        (f"v2-none-ct-0/{names.LEADER_EPOCH_CHECKPOINT}", "0\n2\n0 0\n1 450\n"),
        (f"v2-none-ct-0/{names.LEADER_EPOCH_CHECKPOINT}", "0\n2\n0 0\n1 901\n"),
        (f"v2-none-ct-0/{names.PARTITION_METADATA}", "version: 0\ntopic_id: x"),
        ("meta.properties", "version=7\n"),
    ],
)
def test_small_files_that_say_something_else(name: str, text: str, tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    (folder / name).write_text(text)
    assert faults(folder)


def test_partitions_of_one_topic_have_one_id(tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", "two-partitions-0", tmp_path)
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "log" / "v2-none-ct-0", folder / "two-partitions-1")
    assert any("different topic id" in one for one in faults(folder))


# --- what our engine writes


def random_history(folder: Path, seed: int) -> None:
    """Let the engine live: appends, rolls, retention, deletions, truncations, compaction; it ends well or is killed."""
    random_ = random.Random(seed)
    clock = ManualClock(NOW_MS)
    settings = {"log_segment_bytes": 600, "log_cleaner_backoff_ms": 1000, "log_index_interval_bytes": 200}
    manager = started(folder, clock, **settings)
    manager.create_topic("plain", 2, {"retention.ms": 5_000_000})
    manager.create_topic("compacted", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": 60_000})
    for _ in range(random_.randint(1, 4)):
        for _ in range(random_.randint(5, 40)):
            log = random_.choice(list(manager.logs.values()))
            action = random_.random()
            if action < 0.8:
                key = b"key %d" % random_.randrange(4)
                log.append_as_leader(batch(timestamp=clock.now_ms(), key=key, count=random_.randint(1, 4)), 0)
                if random_.random() < 0.9:
                    log.update_high_watermark(log.log_end_offset)
            elif action < 0.85 and "plain" in log.directory.name:
                log.delete_records(random_.randint(log.log_start_offset, log.high_watermark))
            elif action < 0.88 and log.high_watermark < log.log_end_offset:
                log.truncate_to(log.high_watermark)
            else:
                clock.advance(random_.choice([1_000, 61_000, 2_000_000]))
                manager.tick()
        if random_.random() < 0.5:
            die(manager)
        else:
            manager.shutdown()
        manager = started(folder, clock, **settings)
    if random_.random() < 0.5:
        die(manager)
    else:
        manager.shutdown()


@pytest.mark.parametrize("seed", range(8))
def test_what_our_engine_leaves_is_clean_and_what_is_taken_from_it_is_seen(seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    random_history(folder, seed)
    assert faults(folder) == []
    log = LogDir(folder).log("plain", seed % 2)
    gone = random.Random(seed).choice(log.segments)
    start, first_epoch = log.log_start_offset, log.leader_epochs.earliest
    is_head = gone is log.segments[0] and first_epoch is not None and first_epoch.start_offset > gone.base_offset
    if gone.base_offset == log.log_end_offset or gone.next_offset <= start or is_head:
        return  # It is empty, below the log start, or its records were deleted and a crash has forgotten that.
    for path in log.directory.glob(f"{gone.base_offset:020d}.*"):
        path.unlink()
    assert any("missing" in one for one in faults(folder))


# --- the rules alone


def test_epochs() -> None:
    known = LeaderEpochs([EpochEntry(1, 10), EpochEntry(3, 20)])
    assert list(epoch_faults(known, True, [(1, 8, 12), (3, 20, 24)], 10)) == []
    told = list(epoch_faults(known, True, [(1, 12, 12), (3, 18, 30)], 10))
    assert told == ["has epoch 1 for offset 18, but the batch there has epoch 3"]
    assert len(list(epoch_faults(known, True, [(3, 22, 22), (1, 25, 25)], 10))) == 2
    assert list(epoch_faults(LeaderEpochs(), False, [(0, 0, 0)], 0)) == ["is missing, but the batches have leader epochs"]
    assert list(epoch_faults(LeaderEpochs(), False, [], 0)) == []


@pytest.mark.parametrize(
    ("have", "bases", "is_closed", "has_topic_id", "lost"),
    [
        ([10, 20, 30], [0, 10, 20], True, True, []),
        ([10, 20], [0, 10, 20], True, True, [30]),
        ([10, 20], [0, 10, 20], False, True, []),
        ([20, 30], [0, 10, 20], True, True, [10]),
        ([10, 30], [0, 10, 20], True, True, [20]),
        ([20, 30], [0, 5, 10, 20], True, True, []),  # Older releases kept the newest only.
        ([20, 30], [0, 10, 20], True, False, []),
        ([], [0, 10], False, False, []),
    ],
)
def test_snapshots(have: list[int], bases: list[int], is_closed: bool, has_topic_id: bool, lost: list[int]) -> None:
    assert missing_snapshots(SnapshotFacts(have, bases, 0, 30, is_closed, has_topic_id)) == lost


def test_checkpoints() -> None:
    assert list(checkpoint_faults(0, 10, 10, None, is_closed=True)) == []
    assert list(checkpoint_faults(0, 10, 4, 7, is_closed=False)) == []
    assert [name for name, _ in checkpoint_faults(0, 10, 4, 11, is_closed=True)] == ["recovery-point", "cleaner"]


def image(**partitions: r.PartitionRecord) -> MetadataImage:
    made = MetadataImage()
    for name, record in partitions.items():
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        made.replay(r.TopicRecord(name=name, topic_id=topic_id))
        record.topic_id = topic_id
        made.replay(record)
    return made


def test_what_the_metadata_expect() -> None:
    here, there = uuid.uuid4(), uuid.uuid4()
    made = image(
        ours=r.PartitionRecord(partition_id=0, replicas=[1, 2], directories=[here, there]),
        other_folder=r.PartitionRecord(partition_id=0, replicas=[1], directories=[there]),
        unassigned=r.PartitionRecord(partition_id=3, replicas=[1], directories=[uuid.UUID(int=0)]),
        before_kip_858=r.PartitionRecord(partition_id=1, replicas=[2, 1], directories=[]),
        other_node=r.PartitionRecord(partition_id=0, replicas=[2], directories=[here]),
    )
    expected = expected_partitions(made, Owner(1, here))
    assert sorted(expected) == [("before_kip_858", 1), ("ours", 0), ("unassigned", 3)]
    made.brokers[1] = r.RegisterBrokerRecord(1, log_dirs=[here, there])
    assert sorted(expected_partitions(made, Owner(1, here))) == [("ours", 0)]
    made.brokers[1] = r.RegisterBrokerRecord(1, log_dirs=[here])
    assert ("other_folder", 0) in expected_partitions(made, Owner(1, here)), "the node has no other folder any more"
    made.brokers[1] = r.RegisterBrokerRecord(1, log_dirs=[there])
    assert ("other_folder", 0) not in expected_partitions(made, Owner(1, here)), "this is the disk that was replaced"
    key = TopicPartition("ours", 0)
    assert strangers({key: made.topics["ours"].topic_id}, made) == {}
    assert list(strangers({key: uuid.uuid4()}, made)) == [key]


def test_what_only_the_metadata_name_is_missing(tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    topic_id, lost_id = read_topic_id(folder / "v2-none-ct-0" / names.PARTITION_METADATA), uuid.uuid4()
    assert topic_id is not None
    replica = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    records = [
        r.TopicRecord(name="v2-none-ct", topic_id=topic_id),
        r.PartitionRecord(partition_id=0, topic_id=topic_id, **replica),
        r.TopicRecord(name="lost", topic_id=lost_id),
        r.PartitionRecord(partition_id=2, topic_id=lost_id, **replica),
    ]
    (folder / "__cluster_metadata-0").mkdir()
    batch_ = build_batch([encode_record(record, 0) for record in records], 0, 1, NOW_MS)
    (folder / "__cluster_metadata-0" / names.file_name(0, ".log")).write_bytes(batch_)
    (lost,) = faults(folder)
    assert lost.startswith("lost-2: ")
    (folder / "v2-none-ct-0" / names.PARTITION_METADATA).write_text("version: 0\ntopic_id: 8bHAiWzVQAKqTq3mJqq5sQ")
    assert any("belongs to a different topic of that name" in one for one in faults(folder))


def test_a_folder_that_is_in_use_is_looked_at_again(tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    (folder / names.HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nv2-none-ct 0 2000\n")
    waits: list[float] = []

    def settle(seconds: float) -> None:
        waits.append(seconds)
        (folder / names.HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nv2-none-ct 0 900\n")

    assert not verify_folder(folder, sleep=settle).is_sound
    assert waits == []
    (folder / names.HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nv2-none-ct 0 2000\n")
    assert not is_locked(folder)
    with DirLock(folder):
        assert is_locked(folder)
        assert verify_folder(folder, sleep=settle).is_sound
    assert len(waits) == 1


# --- the command


def test_the_command(tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    clean = run("verify", folder)
    assert (clean.exit_code, len(clean.lines)) == (0, 2)
    for path in (folder / "v2-none-ct-0").glob("00000000000000000160.*"):
        path.unlink()
    ran = run("verify", folder)
    assert ran.exit_code == 3
    assert ran.lines[0].startswith("missing: v2-none-ct-0: offsets [160, 325) missing: no segment holds them")
    ran = run("verify", folder, "v2-none-ct", "--json")
    assert ran.exit_code == 3
    lost = ran.json_lines[0]
    assert (lost["type"], lost["first_offset"], lost["end_offset"], lost["topic"]) == ("missing", 160, 325, "v2-none-ct")
    assert ran.json_lines[-1] == {"type": "folder", "path": str(folder), "is_sound": False}
    assert [line["type"] for line in ran.json_lines[-2:]] == ["partition", "folder"]


def test_topics_that_are_not_there(tmp_path: Path) -> None:
    folder = closed_partition("kafka-3.9.1", "v2-none-ct-0", tmp_path)
    with pytest.raises(UnknownTopicOrPartitionError):
        verify_folder(folder, ["nobody"])
