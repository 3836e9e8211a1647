"""Tiered topics that Kafka 3.9.1 wrote, copied to LocalTieredStorage and by Aiven's plugin: read as Kafka's consumer reads them.

Where Kafka's look-ups are wrong, the rows that it served are the judge: the largest timestamp of a tiered topic (KAFKA-17552).
"""

from __future__ import annotations

import functools
import json
import logging
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.cli.conftest import run, run_ok
from tests.kafka.tiered_key import private_pem
from tests.reader.golden import GOLDEN
from tidelog.errors import CorruptDataError, InvalidArgumentError, NotFoundError, SegmentChangedError
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.metadata.batches import build_batch
from tidelog.metadata.frame import encode_record
from tidelog.metadata.remote_log_records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentState,
    TopicIdPartitionEntry,
)
from tidelog.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    REMOTE_LOG_METADATA_TOPIC,
    TopicPartition,
)
from tidelog.reader.segment import Segment
from tidelog.reader.tiered import aiven_layout
from tidelog.reader.tiered.remote_segments import RemoteSegment, metadata_partition
from tidelog.reader.tiered.tiered_log_dir import TieredLogDir, open_log_dir
from tidelog.sources.opening import open_source, tiered

KINDS = ("local", "aiven")
TOPICS = ("orders", "short", "plain")


class Golden:
    """A golden folder, with its tier's address and what Kafka said of it."""

    def __init__(self, folder: Path, kind: str, key: Path) -> None:
        self.data, self.remote = folder / "data", folder / "remote"
        self.tier = str(self.remote / "backup" if kind == "aiven" else self.remote)
        self.keys = (str(key),) if kind == "aiven" else ()
        self.options = ["--tier", self.tier, *(word for one in self.keys for word in ("--tier-key", one))]
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())

    @property
    def address(self) -> str:
        return str(tiered(self.data, self.tier, self.keys))

    def delete(self, segment: RemoteSegment, ends: dict[int, int]) -> None:
        """Do as Kafka's retention: say that a segment is being deleted, in the metadata that end there, and delete it."""
        number = metadata_partition(segment.partition, len(ends))
        entry = TopicIdPartitionEntry(segment.partition.topic, segment.partition.topic_id, segment.partition.partition)
        record = RemoteLogSegmentMetadataUpdateRecord(
            RemoteLogSegmentIdEntry(entry, segment.id), 1, segment.event_ms, None, SegmentState.DELETE_SEGMENT_STARTED
        )
        log = max((self.data / f"{REMOTE_LOG_METADATA_TOPIC}-{number}").glob("*.log"))
        with log.open("ab") as file:
            file.write(build_batch([encode_record(record, 0)], ends[number], 0, segment.event_ms))
        for file_of in self.remote.rglob(f"*{format_topic_id(segment.id)}*"):
            file_of.unlink()

    def rows(self, topic: str, **arguments: Any) -> list[tuple[int, int, str, str]]:
        found = tidelog.scan(self.data, topic, tier=self.tier, tier_keys=self.keys, **arguments).read_all().to_pylist()
        return [(row["offset"], _ms(row["timestamp"]), row["key"].decode(), row["value"].decode()) for row in found]


def _ms(time: Any) -> int:
    return round(time.timestamp() * 1000)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "private.pem"
    path.write_bytes(private_pem())
    return path


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """The key is checked when it is loaded, which takes longer than most of what is tested here: each file is loaded once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aiven_layout, "_load_key", functools.cache(aiven_layout._load_key))
        yield


@pytest.fixture(params=KINDS)
def golden(request: pytest.FixtureRequest, key: Path) -> Golden:
    return Golden(GOLDEN / "tiered" / request.param, request.param, key)


@pytest.fixture
def copy(golden: Golden, tmp_path: Path, request: pytest.FixtureRequest, key: Path) -> Golden:
    """A copy of the golden folder, to change it."""
    shutil.copytree(golden.data.parent, tmp_path / "golden")
    return Golden(tmp_path / "golden", "aiven" if golden.keys else "local", key)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_is_read_as_kafka_served_it(golden: Golden, topic: str) -> None:
    rows = [tuple(row) for row in golden.expected[topic]["rows"]]
    assert golden.rows(topic) == rows
    committed = set(golden.expected[topic]["read_committed_offsets"])
    assert golden.rows(topic, isolation="read_committed") == [row for row in rows if row[0] in committed]


def test_a_list_of_folders(golden: Golden, tmp_path: Path) -> None:
    replica = shutil.copytree(golden.data, tmp_path / "replica")
    found = tidelog.scan([golden.data, str(replica)], "orders", tier=golden.tier, tier_keys=golden.keys).read_all()
    assert found.column("offset").to_pylist() == [row[0] for row in golden.expected["orders"]["rows"]]


@pytest.mark.parametrize("topic", TOPICS)
def test_ranges_of_time(golden: Golden, topic: str) -> None:
    rows = [tuple(row) for row in golden.expected[topic]["rows"]]
    times = sorted(row[1] for row in rows)
    for start, end in ((times[0], times[-1]), (times[30], times[31]), (times[-5], times[-1] + 1), (times[10], times[40])):
        assert golden.rows(topic, start=start, end=end) == [row for row in rows if start <= row[1] < end]


@pytest.mark.parametrize("topic", TOPICS)
def test_look_ups(golden: Golden, topic: str) -> None:
    """Kafka's own answers, and for each time the first row that reaches it."""
    rows = golden.expected[topic]["rows"]
    with open_source(golden.address) as source:
        key = TopicPartition(topic, 0)

        def found(target: int) -> tuple[int, int]:
            one = source.find({key: target})[key]
            return (-1, -1) if one is None else (one.offset, one.timestamp)

        for target, offset, timestamp in golden.expected[topic]["list_offsets"]:
            assert found(target) == (offset, timestamp), target
        for time in sorted({row[1] + shift for row in rows for shift in (0, 1)}):
            first = next(((row[0], row[1]) for row in rows if row[1] >= time), None)
            # Control records have times, too.
            assert first is None or found(time)[0] <= first[0]
            if first is not None and found(time) != first:
                assert found(time)[0] not in {row[0] for row in rows}
        largest, (offset, timestamp) = max(row[1] for row in rows), found(MAX_TIMESTAMP)
        if topic == "orders":  # Control records have times, too: those of the broker that wrote this.
            assert timestamp > largest and offset not in {row[0] for row in rows}
        else:
            assert (offset, timestamp) == next((row[0], row[1]) for row in rows if row[1] == largest)


def test_special_targets_have_words(golden: Golden) -> None:
    expected = {target: offset for target, offset, _ in golden.expected["orders"]["list_offsets"]}
    words = {"earliest": EARLIEST, "latest": LATEST, "earliest-local": EARLIEST_LOCAL, "latest-tiered": LATEST_TIERED}
    for word, target in words.items():
        line = json.loads(run_ok("find", str(golden.data), "orders", "--at", word, "--json", *golden.options).stdout)
        assert line["offset"] == expected[target], word
    assert expected[EARLIEST] < expected[EARLIEST_LOCAL] == expected[LATEST_TIERED] + 1 < expected[LATEST]


def test_nothing_is_missing_and_without_a_tier_it_is_said(golden: Golden) -> None:
    folder = open_log_dir(golden.address)
    assert [one for topic in TOPICS for one in folder.missing(topic)] == []
    lost = run("cat", str(golden.data), "orders")
    assert lost.exit_code == 3
    assert "remote storage: set --tier to its address" in lost.stderr


def test_remote_storage_alone(copy: Golden, caplog: pytest.LogCaptureFixture) -> None:
    """A folder with the metadata topic and nothing else: all that is remote."""
    last = {target: offset for target, offset, _ in copy.expected["orders"]["list_offsets"]}[LATEST_TIERED]
    for folder in copy.data.iterdir():
        if folder.is_dir() and not folder.name.startswith("__remote_log_metadata"):
            shutil.rmtree(folder)
    for file in copy.data.glob("*checkpoint"):
        file.unlink()
    with caplog.at_level(logging.WARNING, "tidelog"):
        found = copy.rows("orders")
    rows = [tuple(row) for row in copy.expected["orders"]["rows"] if row[0] <= last]
    assert [row for row in found if row[0] >= rows[0][0]] == rows
    assert "only the records in remote storage are read" in caplog.text


def test_a_local_segment_that_moves_is_found_remotely(copy: Golden) -> None:
    """It was listed, and then Kafka deleted it: KAFKA-17637."""
    folder = open_log_dir(copy.address)
    assert isinstance(folder, TieredLogDir)
    # A segment that is remote, and still local.
    remote = folder.log("orders", 0).segments[-2]
    stem, names = f"{remote.base_offset:020d}", {".log", ".index", ".timeindex"}
    for name in names:
        handle = remote.log_path.with_suffix(name).open_handle()
        (copy.data / "orders-0" / f"{stem}{name}").write_bytes(handle.read(0, handle.stat().st_size))
        handle.close()
    log = open_log_dir(copy.address).log("orders", 0)
    segment = log.segments[-2]
    assert segment.log_path.stat().st_dev == (copy.data / "orders-0").stat().st_dev
    for name in names:
        (copy.data / "orders-0" / f"{stem}{name}").unlink()
    offsets = [header.base_offset for header in log.headers(segment.base_offset, check_crc=True)]
    assert offsets and offsets[0] == segment.base_offset
    assert segment.time_index is not None
    assert tidelog.find_offset(log, MAX_TIMESTAMP) is not None


def test_a_remote_segment_that_is_deleted_before_it_is_read(copy: Golden) -> None:
    """Retention has begun since the metadata were read: a search looks again, and the log begins with the next segment."""
    key = TopicPartition("orders", 0)
    with open_source(copy.address) as source:
        assert isinstance(source.log_dir, TieredLogDir)
        partition = source.log_dir.partition_id(key)
        assert partition is not None
        first, second = source.log_dir.remote.readable(partition)[:2]
        copy.delete(first, source.log_dir.remote.metadata_partitions)
        found = source.find({key: 0})[key]
        assert found is not None and found.offset == second.start_offset


def test_segments_travel_to_other_processes(golden: Golden) -> None:
    for segment in open_log_dir(golden.address).log("orders", 0).segments:
        again: Segment = pickle.loads(pickle.dumps(segment))
        assert [header.crc for header in again.headers()] == [header.crc for header in segment.headers()]


def test_what_is_gone_or_damaged_is_named(copy: Golden) -> None:
    first = min(copy.remote.rglob("*.log"))
    data = first.read_bytes()
    first.write_bytes(data[:-10])
    with pytest.raises(CorruptDataError, match=r"(?i)size|shorter"):
        copy.rows("orders")
    first.unlink()
    with pytest.raises(SegmentChangedError, match="gone from remote storage"):
        copy.rows("orders")


def test_a_wrong_address_is_one_error(golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no remote segment at the tier's address"):
        tidelog.scan(golden.data, "orders", tier=str(tmp_path), tier_keys=golden.keys)
    with pytest.raises(NotFoundError, match="lacks __remote_log_metadata"):
        tidelog.scan(GOLDEN / "kafka-3.9.1" / "log", "v2-none-ct", tier=str(golden.remote))
    with pytest.raises(InvalidArgumentError, match=r"a tier must be a folder or an object storage address.*localhost:9092"):
        tidelog.scan(golden.data, "orders", tier="localhost:9092")
    with pytest.raises(InvalidArgumentError, match="only a data folder can have a tier"):
        tidelog.scan("localhost:9092", "orders", tier=str(golden.remote))


def test_a_key_that_nothing_needs_is_an_error(tmp_path: Path) -> None:
    golden = Golden(GOLDEN / "tiered" / "local", "local", tmp_path)
    for command in (["find", str(golden.data), "orders", "--at", "earliest"], ["verify", str(golden.data)]):
        ran = run(*command, *golden.options, "--tier-key", "/nope")
        assert ran.exit_code == 1
        assert "a tier's key is given, but LocalTieredStorage does not encrypt" in ran.stderr


def test_keys(key: Path, tmp_path: Path) -> None:
    golden = Golden(GOLDEN / "tiered" / "aiven", "aiven", key)
    with pytest.raises(InvalidArgumentError, match=r"the segments are encrypted.*golden=FILE"):
        tidelog.scan(golden.data, "orders", tier=golden.tier)
    for keys, fault in (([f"other={key}"], "encrypted"), ([str(tmp_path / "none")], "cannot read a private key")):
        with pytest.raises(tidelog.TidelogError, match=fault):
            tidelog.scan(golden.data, "orders", tier=golden.tier, tier_keys=keys)
    (tmp_path / "other.pem").write_bytes(b"-----BEGIN NOTHING-----\n")
    with pytest.raises(InvalidArgumentError, match="not an RSA private key"):
        tidelog.scan(golden.data, "orders", tier=golden.tier, tier_keys=[str(tmp_path / "other.pem")])
    golden.keys = (f"golden={key}",)
    assert golden.rows("orders")
