"""Kafka's own segments, appended again batch by batch: every file must come out byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.segment_files import (
    batch_of,
    bytes_of,
    open_segment,
)
from tidelog.config import LogConfig
from tidelog.records.batch import iter_headers
from tidelog.storage.segment.log_segment import LogSegment

GOLDEN = Path(__file__).parents[1] / "golden"


def golden_segments() -> Iterator[Path]:
    """Every segment that Kafka 3.9.1 wrote; the folder of each keeps some as `.deleted`."""
    for folder in sorted((GOLDEN / "kafka-3.9.1" / "log").iterdir()):
        if folder.is_dir():
            yield from sorted(folder.glob("*.log*"))


GOLDEN_CONFIG = LogConfig(segment_bytes=16384, index_interval_bytes=512, segment_index_bytes=1200)


def append_again(path: Path, folder: Path) -> LogSegment:
    """Put the batches of a segment of Kafka's into one here, one by one."""
    config = LogConfig() if path.parent.name.startswith("__") else GOLDEN_CONFIG
    segment = open_segment(folder, int(path.name[:20]), config)
    log = memoryview(path.read_bytes())
    for header in iter_headers(log):
        segment.append(header.last_offset, [header], batch_of(header, log))
    return segment


@pytest.mark.parametrize("folder", sorted({path.parent.name for path in golden_segments()}))
def test_same_bytes_as_kafka(folder: str, tmp_path: Path) -> None:
    """Appended again, Kafka's batches give Kafka's files; those of the cleaner, too."""
    for path in golden_segments():
        if path.parent.name != folder:
            continue
        segment = append_again(path, tmp_path)
        segment.on_become_inactive()
        segment.close()
        for suffix in (".log", ".index", ".timeindex"):
            kafkas = path.with_name(path.name.replace(".log", suffix))
            assert bytes_of(tmp_path, segment.base_offset, suffix) == kafkas.read_bytes(), kafkas
        segment.delete_if_exists()


def test_there_is_something_to_compare() -> None:
    assert sum(1 for _ in golden_segments()) > 140


@pytest.mark.parametrize("name", ["v2-lz4-ct-0", "transactions-0", "future-pinned-0"])
def test_same_files_as_a_running_kafka(name: str, tmp_path: Path) -> None:
    """Copied while the broker ran: the active segment's indexes are preallocated, and lack their last entry."""
    path = sorted((GOLDEN / "kafka-3.9.1" / "live" / name).glob("*.log"))[-1]
    segment = append_again(path, tmp_path)
    for suffix in (".log", ".index", ".timeindex"):
        assert bytes_of(tmp_path, segment.base_offset, suffix) == path.with_suffix(suffix).read_bytes()
    segment.close()


def test_kafka_2_4_1_segments_are_read(tmp_path: Path) -> None:
    """Their indexes have other entries in places: every offset and every timestamp is found all the same."""
    for path in sorted((GOLDEN / "kafka-2.4.1" / "log").glob("*/*.log")):
        for suffix in (".log", ".index", ".timeindex"):
            (tmp_path / path.with_suffix(suffix).name).write_bytes(path.with_suffix(suffix).read_bytes())
        segment = open_segment(tmp_path, int(path.stem), GOLDEN_CONFIG, file_already_exists=True)
        headers = list(segment.batches())
        if all(header.magic > 0 for header in headers):  # Of v0 with LogAppendTime, Kafka noted what the log does not say.
            largest = max((header.max_timestamp for header in headers), default=-1)
            assert segment.max_timestamp_and_offset_so_far.timestamp == largest, path
        for header in headers:
            found = segment.translate_offset(header.last_offset)
            assert found == (header.last_offset, header.position, header.size)
        segment.close()
        segment.delete_if_exists()
