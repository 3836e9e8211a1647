"""Random data folders, each with another state of itself: what a stale file is a copy of.

| made by | has |
|---|---|
| `laid` | segments laid by hand: formats v0 to v2, coarse and disordered times, holes as compaction leaves them, transactions |
| `brokered` | our broker's: rolled segments, metadata, checkpoints, groups, time maps; the other state is an earlier one |
| `imported` | our import's, with time maps beside the log and elsewhere; the other state has one row's time corrected |
| `golden` | real Kafka's, 2.4.1 and 3.9.1; the other state is that of another topic |
"""

from __future__ import annotations

import csv
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tidelog
from tests.cli.conftest import run_ok
from tests.reader import build
from tests.reader.build import LogBuilder
from tests.records.old_messages import wrap
from tidelog.client.client import NewRecord
from tidelog.clock import ManualClock
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.partition_metadata import write_topic_id
from tidelog.model import METADATA_TOPIC, TopicPartition
from tidelog.records.batch import CREATE_TIME, iter_headers
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.legacy import encode_message
from tidelog.records.records import iter_records
from tidelog.testing import Broker

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FIRST_MS = 1_700_000_000_000
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)


@dataclass
class Folder:
    """A data folder that is sound, and another state of it, of the same layout where that can be."""

    kind: str
    path: Path
    keys: list[TopicPartition]
    other: Path | None = None
    time_map_dir: Path | None = None
    compacted: set[str] = field(default_factory=set)
    groups: list[str] = field(default_factory=list)

    def partition(self, key: TopicPartition) -> Path:
        return self.path / names.log_dir_name(*key)

    def logs(self) -> list[Path]:
        return [log for key in self.keys for log in sorted(self.partition(key).glob(f"*{names.LOG_SUFFIX}"))]


def make(kind: str, path: Path, rng: random.Random) -> Folder:
    return KINDS[kind](path, rng)


def laid(path: Path, rng: random.Random) -> Folder:
    """Lay one or two topics by hand, with the checkpoints of a clean end."""
    folder = Folder("laid", path / "data", [])
    ends, epochs_of = {}, rng.random() < 0.7
    for topic in ["a", "b-c"][: rng.randrange(1, 3)]:
        is_compacted = rng.random() < 0.3
        if is_compacted:
            folder.compacted.add(topic)
        for partition in range(rng.randrange(1, 3)):
            key = TopicPartition(topic, partition)
            folder.keys.append(key)
            ends[key] = _lay(folder.partition(key), rng, is_compacted=is_compacted, has_epochs=epochs_of)
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT):
        write_offset_checkpoint(folder.path / name, ends)
    write_offset_checkpoint(folder.path / names.LOG_START_OFFSET_CHECKPOINT, {})
    cleaned = {key: ends[key] for key in ends if key.topic in folder.compacted}
    write_offset_checkpoint(folder.path / names.CLEANER_CHECKPOINT, cleaned)
    (folder.path / "meta.properties").write_text("version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\n")
    (folder.path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":"0"}')
    if rng.random() < 0.4:
        folder.time_map_dir = path / "maps"
        folder.time_map_dir.mkdir()
    if rng.random() < 0.5:
        _map(folder)
    folder.other = path / "other"
    shutil.copytree(folder.path, folder.other)
    _shift_one_batch(folder, rng)
    return folder


def _lay(directory: Path, rng: random.Random, *, is_compacted: bool, has_epochs: bool) -> int:
    """Write one partition; return its end."""
    builder = LogBuilder(directory, interval_bytes=rng.choice([0, 0, 200, 4096]), per_append=rng.random() < 0.2)
    magics = rng.choice([[2], [2], [2], [1], [1, 2], [0, 1, 2]])
    unit, disorder = rng.choice([1, 1000, 1000]), rng.choice([0, 0, 1, 4, 12])
    count, second, epoch, opened = rng.randrange(4, 40), 0, 0, set[int]()
    epochs = LeaderEpochs()
    is_append_time = rng.random() < 0.15
    for number in range(count):
        magic = magics[len(magics) * number // count]
        offset = builder.next_offset + (rng.choice([0, 0, 1, 9]) if is_compacted and number else 0)
        second += rng.choice([0, 0, 1, 1, 3])
        times = []
        for _ in range(rng.randrange(1, 5)):
            late = rng.randrange(disorder + 1) if rng.random() < 0.5 else 0
            times.append(FIRST_MS + max(0, second - late) * unit if rng.random() < 0.98 else -1)
        epoch += rng.random() < 0.05
        if magic == 2 and (epochs.latest is None or epochs.latest.epoch < epoch):
            epochs.assign(epoch, offset)
        producer = rng.randrange(3) if magic == 2 and rng.random() < 0.3 else None
        codec = rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP, Codec.ZSTD if magic == 2 else Codec.NONE])
        step = rng.choice([1, 1, 2]) if is_compacted and magic == 2 and producer is None else 1
        append_time = FIRST_MS + second * unit if is_append_time and magic > 0 else None
        sequence = builder.next_offset  # No producer is checked here; they only must not be the same.
        data = build.batch(
            offset,
            times,
            magic=magic,
            codec=codec,
            step=step,
            append_time=append_time,
            epoch=epoch if magic == 2 and has_epochs else -1,
            producer=None if producer is None else Producer(producer, 0, sequence),
            transactional=producer is not None,
            value=rng.randbytes(rng.choice([5, 5, 40, 700])),
        )
        if magic < 2 and codec is not Codec.NONE and rng.random() < 0.3:
            data = _mixed(data)
        builder.append(data)
        if producer is not None:
            opened.add(producer)
        if opened and rng.random() < 0.4:
            ending = opened.pop()
            kind = rng.choice([ControlType.ABORT, ControlType.COMMIT])
            builder.append(build.marker(builder.next_offset, FIRST_MS + second * unit, kind, ending))
        if rng.random() < 0.09 and number + 1 < count:
            builder.roll()
    builder.close()
    write_topic_id(directory / names.PARTITION_METADATA, uuid.uuid5(uuid.NAMESPACE_DNS, directory.name.rpartition("-")[0]))
    if has_epochs and epochs.latest is not None:
        epochs.write(directory / names.LEADER_EPOCH_CHECKPOINT)
    return builder.next_offset


def _mixed(data: bytes) -> bytes:
    """Return a wrapper around messages of the other format, as the cleaner of 0.10.0 left it."""
    (header,) = iter_headers(data)
    first = header.last_offset + 1 - len(records := list(iter_records(header, data)))
    messages = b"".join(
        encode_message(1 - header.magic, one.offset - (first if header.magic else 0), one.timestamp, one.key, one.value)
        for one in records
    )
    return wrap(
        header.magic,
        header.last_offset,
        messages,
        header.codec,
        timestamp=-1 if header.magic == 0 else header.max_timestamp,
        timestamp_type=max(header.timestamp_type, CREATE_TIME),
    )


def _shift_one_batch(folder: Folder, rng: random.Random) -> None:
    """Make the other state one of which a batch has another time, and indexes of its own: everything else is the same."""
    assert folder.other is not None
    logs = [log for log in sorted(folder.other.rglob(f"*{names.LOG_SUFFIX}")) if log.stat().st_size]
    log = rng.choice(logs)
    data = bytearray(log.read_bytes())
    # A first record without a timestamp is -1, from which those of the others are counted.
    headers = [header for header in iter_headers(data) if header.magic == 2 and header.base_timestamp >= FIRST_MS]
    if not headers:
        return
    header = rng.choice(headers)
    shift = rng.choice([-7, -1, 1, 7, 3600]) * 1000
    for at in (27, 35):  # Base and largest timestamp; records have the difference to the first.
        place = slice(header.position + at, header.position + at + 8)
        data[place] = (int.from_bytes(data[place], "big", signed=True) + shift).to_bytes(8, "big", signed=True)
    from crc32c import crc32c

    start = header.position + 17
    data[start : start + 4] = crc32c(bytes(data[header.position + 21 : header.end_position])).to_bytes(4, "big")
    log.write_bytes(data)
    run_ok("index", "rebuild", folder.other, "--jobs", 1)


def brokered(path: Path, rng: random.Random) -> Folder:
    """Have our broker write one or two topics, in two runs; the other state is that between them."""
    data, clock = path / "data", ManualClock(FIRST_MS)
    topics = {topic: rng.randrange(1, 4) for topic in ["orders", "x.y"][: rng.randrange(1, 3)]}
    folder = Folder(
        "brokered", data, [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    )
    settings = {topic: _settings(rng) for topic in topics}
    folder.compacted = {topic for topic, given in settings.items() if given.get("cleanup_policy") == "compact"}
    unit, disorder = rng.choice([1, 1000]), rng.choice([0, 0, 5, 60])
    for turn in range(2):
        with Broker(data, clock=clock, offsets_topic_num_partitions=1) as broker:
            if not turn:
                for topic, count in topics.items():
                    broker.create_topic(topic, count, **settings[topic])
            with tidelog.connect(broker.bootstrap_servers, clock=clock) as client:
                for _ in range(rng.randrange(3, 14)):
                    topic = rng.choice(list(topics))
                    clock.advance(rng.choice([1, 500, 60_000]))
                    records = [
                        NewRecord(
                            rng.randbytes(rng.choice([10, 10, 300])),
                            b"key %d" % rng.randrange(5),
                            max(1, clock.now_ms() - rng.randrange(disorder + 1) * unit),
                            partition=rng.randrange(topics[topic]),
                        )
                        for _ in range(rng.randrange(1, 30))
                    ]
                    codec = rng.choice(["none", "none", "lz4", "gzip", "zstd", "snappy"])
                    client.produce_many(topic, records, compression=codec, batch_bytes=rng.choice([1, 300, 1500]))
        if not turn:
            folder.other = path / "other"
            shutil.copytree(data, folder.other)
    return folder


def _settings(rng: random.Random) -> dict[str, str | int]:
    settings: dict[str, str | int] = {
        "segment_bytes": rng.choice([2500, 2500, 20_000]),
        "index_interval_bytes": rng.choice([0, 100, 4096]),
        "retention_ms": -1,
    }
    if rng.random() < 0.2:
        settings["message_timestamp_type"] = "LogAppendTime"
    if rng.random() < 0.2:
        settings["cleanup_policy"] = "compact"
    return settings


def imported(path: Path, rng: random.Random) -> Folder:
    """Import a table; the other state is the same with one row's time corrected."""
    rows = rng.randrange(50, 600)
    unit, disorder = rng.choice([1, 1000, 60_000]), rng.choice([0, 0, 5, 100])
    times = [FIRST_MS + max(0, row - rng.randrange(disorder + 1)) * unit for row in range(rows)]
    options = ["--timestamp", "time", "--value", "value", "--partitions", rng.choice([1, 1, 2])]
    options += ["--batch-bytes", rng.choice([60, 400, 2000]), "--segment-bytes", rng.choice([1500, 6000, 1 << 30])]
    options += ["--index-interval-bytes", rng.choice([0, 100, 4096]), "--codec", rng.choice(["none", "none", "zstd"])]
    folder = Folder("imported", path / "data", [])
    folder.other = path / "other"
    corrected = rng.randrange(rows)
    for target in (folder.other, folder.path):
        source = path / f"{target.name}.csv"
        with source.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", "value"])
            writer.writerows((time, f"row {row}") for row, time in enumerate(times))
        run_ok("import", target, "rows", source, *options)
        times[corrected] = max(1, times[corrected] + rng.choice([-50, -1, 1, 50, 5000]) * unit)
    folder.keys = [TopicPartition("rows", number) for number in range(int(options[5]))]
    if rng.random() < 0.5:
        folder.time_map_dir = path / "maps"
        folder.time_map_dir.mkdir()
        _map(folder)
    return folder


def golden(path: Path, rng: random.Random) -> Folder:
    """Copy some of the partitions that real Kafka wrote, with their lines of the checkpoints."""
    version, part = rng.choice([("kafka-3.9.1", "log"), ("kafka-3.9.1", "log"), ("kafka-3.9.1", "live"), ("kafka-2.4.1", "log")])
    source = GOLDEN / version / part
    found = sorted(one.name for one in source.iterdir() if one.is_dir() and not one.name.startswith("__"))
    chosen = rng.sample(found, min(len(found), rng.randrange(1, 4)))
    keys = [TopicPartition(*names.parse_topic_partition_name(name)) for name in chosen]
    data = path / "data"
    for name in chosen:
        shutil.copytree(source / name, data / name)
    if part == "log":
        (data / names.CLEAN_SHUTDOWN_FILE).touch()
        shutil.copy(source / "meta.properties", data)
        for name in CHECKPOINTS:
            if (source / name).exists():
                offsets = read_offset_checkpoint(source / name)
                write_offset_checkpoint(data / name, {key: offset for key, offset in offsets.items() if key in keys})
    folder = Folder(f"golden {version} {part}", data, sorted(keys))
    folder.compacted = {"compacted"}
    folder.other = path / "other"
    shutil.copytree(source / rng.choice(found), folder.other / chosen[0])
    if rng.random() < 0.3:
        _map(folder)
    return folder


def _map(folder: Folder) -> None:
    from tidelog.reader.time_map_file import write_time_map

    for log in folder.logs():
        write_time_map(log, folder.time_map_dir, block_bytes=1024)


KINDS: dict[str, Callable[[Path, random.Random], Folder]] = {
    "laid": laid,
    "brokered": brokered,
    "imported": imported,
    "golden": golden,
}


def any_kind(rng: random.Random) -> Iterator[str]:
    """Yield kinds forever; the cheap one most often."""
    while True:
        yield from rng.sample(["laid", "laid", "laid", "laid", "imported", "golden", "golden", "brokered"], 8)


__all__ = ["KINDS", "METADATA_TOPIC", "Folder", "any_kind", "make"]
