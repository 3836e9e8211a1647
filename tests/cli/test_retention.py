"""`tidelog retention`: when segments go, and who keeps them."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import uuid
from pathlib import Path
from typing import Any

import crc32c
import pytest

from tests.cli.conftest import KAFKA_2, KAFKA_3, run, run_ok
from tests.storage.known_topics import forget, register
from tidelog.clock import ManualClock
from tidelog.metadata.frame import encode_record
from tidelog.metadata.records import ConfigRecord, TopicRecord
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager
from tidelog.storage.topics.topic import Topic

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def write(directory: Path, timestamps: list[int], **properties: str | int) -> ManualClock:
    """One record a batch and about two batches a segment, all below the high watermark."""
    clock = ManualClock(NOW_MS)
    names = {name.replace("_", "."): value for name, value in properties.items()}
    with LogManager(directory, clock) as manager:
        manager.create_topic("t", 1, {"segment.bytes": 200, **names})
        log = manager.log("t", 0)
        for timestamp in timestamps:
            log.append_as_leader(build_batch_v2([Record(0, timestamp, 0, b"k", b"v" * 20)]), 0)
            log.update_high_watermark(log.log_end_offset)
    return clock


def test_each_segment_and_the_record_that_keeps_it(tmp_path: Path) -> None:
    ages = [9, 8.5, 6, 6.5, 8, 8]
    clock = write(tmp_path, [NOW_MS - int(age * DAY_MS) for age in ages], retention_ms=7 * DAY_MS)
    rows = run_ok("retention", tmp_path, "t", "--json", clock=clock).json_lines
    assert [row["goes_now"] for row in rows] == [True, False, False]
    assert [row["kept_by_offset"] for row in rows] == [1, 2, 2]
    assert [row["kept_by_segment"] for row in rows] == [0, 2, 2]
    assert rows[1]["goes_ms"] == NOW_MS - 6 * DAY_MS + 7 * DAY_MS + 1 == rows[2]["goes_ms"]
    lines = run_ok("retention", tmp_path, "t", clock=clock).lines
    assert (
        lines[0]
        == "t-0: retention 7d (the topic's, in the metadata log), any size (Kafka's default); high watermark 6, log end 6"
    )
    assert lines[-1].endswith("in 1d 1ms  retention.ms, kept by record 2 in segment 2")


def test_the_engine_deletes_what_is_told(tmp_path: Path) -> None:
    """The forecast and the engine agree, at the millisecond."""
    rng = random.Random(5)
    timestamps = [NOW_MS - rng.randrange(20 * DAY_MS) for _ in range(40)]
    clock = write(tmp_path, timestamps, retention_ms=7 * DAY_MS)
    rows = run_ok("retention", tmp_path, "t", "--json", clock=clock).json_lines
    for moment in sorted({row["goes_ms"] for row in rows}):
        # What is due already shows the present, not when it became due.
        for now_ms in (moment - 1, moment) if moment > NOW_MS else (moment,):
            folder = tmp_path.parent / f"{tmp_path.name}-{now_ms}"
            shutil.copytree(tmp_path, folder)
            with LogManager(folder, ManualClock(now_ms)) as manager:
                manager.delete_old_segments()
                kept = set(manager.log("t", 0).segments.base_offsets)
            assert kept & {row["base_offset"] for row in rows} == {row["base_offset"] for row in rows if row["goes_ms"] > now_ms}


def test_a_record_of_the_future_is_named(tmp_path: Path) -> None:
    timestamps = [NOW_MS - 30 * DAY_MS] * 2 + [NOW_MS + 400 * DAY_MS] + [NOW_MS - 30 * DAY_MS] * 5
    clock = write(tmp_path, timestamps)
    ran = run_ok("retention", tmp_path, "t", clock=clock)
    assert ran.lines[-1].strip() == "record 2 is 400d in the future (2024-12-18T22:13:20.000Z) and keeps 3 segments"
    assert [row["kept_by_future"] for row in run_ok("retention", tmp_path, "--json", clock=clock).json_lines] == [
        False,
        *[True] * 3,
    ]
    # What lies after it is as old as what goes now, and stays as long as it.
    rows = run_ok("retention", tmp_path, "--json", clock=clock).json_lines
    assert [row["kept_by_segment"] for row in rows[1:]] == [rows[1]["base_offset"]] * 3
    assert {row["goes_ms"] for row in rows[1:]} == {NOW_MS + 407 * DAY_MS + 1}
    with LogManager(tmp_path, clock) as manager:
        log = manager.log("t", 0)
        assert log.delete_old_segments() == 1
        clock.advance(407 * DAY_MS)
        assert log.delete_old_segments() == 0
        clock.advance(1)
        assert log.delete_old_segments() == 3


def test_size_log_start_and_policies(tmp_path: Path) -> None:
    clock = write(tmp_path, [NOW_MS] * 8, retention_bytes=300)
    rows = run_ok("retention", tmp_path, "t", "--json", clock=clock).json_lines
    assert [row["reason"] for row in rows] == ["retention.bytes", "retention.bytes", "retention.ms", "retention.ms"]
    rows = run_ok("retention", tmp_path, "t", "--retention-bytes", "-1", "--retention", "-1", "--json", clock=clock).json_lines
    assert {row["reason"] for row in rows} == {"no retention.ms"}
    register(tmp_path, Topic("t", uuid.UUID(int=1), 1, {"cleanup.policy": "compact"}))
    rows = run_ok("retention", tmp_path, "t", "--json", clock=clock).json_lines
    assert {row["reason"] for row in rows} == {"cleanup.policy has no delete"}


def test_above_the_high_watermark_stays(tmp_path: Path) -> None:
    clock = write(tmp_path, [NOW_MS - 30 * DAY_MS] * 4)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    rows = run_ok("retention", tmp_path, "t", "--json", clock=clock).json_lines
    assert [(row["goes_now"], row["reason"]) for row in rows] == [(True, "retention.ms"), (False, "above the high watermark")]


def test_kafkas_folders(expected: object) -> None:
    ran = run_ok("retention", KAFKA_3, clock=ManualClock(NOW_MS))
    assert ran.notes == [
        "note: the configuration of __consumer_offsets, __transaction_state, compacted, deleted-prefix, "
        f"empty and {len({json.loads(one)['topic'] for one in _json_lines(KAFKA_3)}) - 5} more is not in the folder's metadata"
    ]
    pinned = run_ok("retention", KAFKA_3, "future-pinned", "--json", clock=ManualClock(NOW_MS)).json_lines
    assert any(row["kept_by_future"] for row in pinned)
    old = run_ok("retention", KAFKA_2, "v0-none-ct", "--retention", "7d", clock=ManualClock(NOW_MS))
    assert "file's time" in old.stdout


def _json_lines(folder: Path) -> list[str]:
    return [line for line in run_ok("retention", folder, "--json", clock=ManualClock(NOW_MS)).stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--retention", "soon"), "the text is not a duration: found 'soon'"),
        (("--retention", "99999999999999999w"), "the duration is too long"),
        (("--retention", "-2"), "the text is not a duration: found '-2'"),
        (("--retention-bytes", "ten"), "not a size: found 'ten'"),
        (("--partition", "7"), "no partition 7"),
    ],
)
def test_what_makes_no_sense(arguments: tuple[str, ...], words: str) -> None:
    ran = run("retention", KAFKA_3, "two-partitions", *arguments)
    assert ran.exit_code == (1 if "partition" in words else 2)
    assert words in ran.error


def test_segments_that_a_compaction_left_empty(tmp_path: Path) -> None:
    """Kafka leaves files of no bytes, and batches without records or timestamps: both go by the file's time."""
    clock = write(tmp_path, [NOW_MS - 9 * DAY_MS] * 8, cleanup_policy="compact,delete", retention_ms=7 * DAY_MS)
    folder = tmp_path / "t-0"
    first, second, *_ = sorted(folder.glob("*.log"))
    for path in (first, second):
        for index in folder.glob(f"{path.stem}.*index"):
            index.unlink()
    first.write_bytes(b"")
    header = next(iter_headers(second.read_bytes()))
    second.write_bytes(empty_batch(header))
    for path, days in ((first, 8), (second, 2)):
        os.utime(path, ((NOW_MS - days * DAY_MS) / 1000,) * 2)
    rows = run_ok("retention", tmp_path, "t", "--json", clock=clock).json_lines
    assert [(row["goes_now"], row["kept_by_offset"]) for row in rows[:2]] == [(True, None), (False, None)]
    assert rows[0]["bytes"] == 0
    assert rows[1]["goes_ms"] == NOW_MS + 5 * DAY_MS + 1


def empty_batch(header: BatchHeader) -> bytes:
    """What is left of a batch whose records are all gone: a header, without timestamps."""
    crc_covered = struct.pack(">hiqqqhii", 0, header.last_offset - header.base_offset, -1, -1, -1, -1, -1, 0)
    return struct.pack(">qiibI", header.base_offset, 49, 0, 2, crc32c.crc32c(crc_covered)) + crc_covered


def test_settings_of_a_kafkas_metadata_log(tmp_path: Path) -> None:
    """The topic's own before the broker's, before those of all brokers, before a file's, before Kafka's defaults."""
    clock = write(tmp_path, [NOW_MS - 2 * DAY_MS] * 4)
    forget(tmp_path)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=3\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    config = tmp_path / "server.properties"
    config.write_text("log.retention.hours=240\nlog.cleanup.policy=compact,delete\nlog.segment.bytes=5000\n")
    settings = ("cleanup.policy", "retention.ms", "retention.bytes")

    def told(*options: object) -> list[tuple[object, str]]:
        (row, *_) = run_ok("retention", tmp_path, "t", "--json", *options, clock=clock).json_lines
        return [(row["settings"][name]["value"], row["settings"][name]["source"]) for name in settings]

    assert told() == [("delete", "default"), (7 * DAY_MS, "default"), (-1, "default")]
    assert told("--config", config) == [("compact,delete", "file"), (10 * DAY_MS, "file"), (-1, "default")]
    metadata = [
        TopicRecord("t", uuid.UUID(int=1)),
        ConfigRecord(2, "t", "retention.ms", str(DAY_MS)),
        ConfigRecord(4, "", "log.retention.bytes", "100"),
        ConfigRecord(4, "", "log.cleanup.policy", "compact"),
        ConfigRecord(4, "3", "log.cleanup.policy", "delete"),
        ConfigRecord(4, "4", "log.cleanup.policy", "compact"),
    ]
    write_metadata(tmp_path, metadata)
    expected = [("delete", "metadata_broker"), (DAY_MS, "metadata_topic"), (100, "metadata_broker")]
    assert told() == told("--config", config) == expected
    assert told("--retention", "3d")[1] == (3 * DAY_MS, "option")
    ran = run_ok("retention", tmp_path, "t", clock=clock)
    assert "is not in the folder's metadata" not in ran.stderr
    assert "retention 1d (the topic's, in the metadata log), 100 B (the broker's, in the metadata log)" in ran.lines[0]


def write_metadata(directory: Path, messages: list[Any]) -> None:
    folder = directory / "__cluster_metadata-0"
    folder.mkdir()
    records = [Record(at, NOW_MS, 0, None, encode_record(message, 0)) for at, message in enumerate(messages)]
    (folder / f"{0:020d}.log").write_bytes(build_batch_v2(records, leader_epoch=1))


@pytest.mark.parametrize("by", [1, -1])
def test_a_segment_under_a_name_that_is_not_its_own(tmp_path: Path, by: int) -> None:
    """What goes, and when, is about the records that a name stands for: one that does not fit is an error."""
    clock = write(tmp_path, [NOW_MS - DAY_MS] * 6, retention_ms=7 * DAY_MS)
    folder = tmp_path / "t-0"
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 3
    number = int(logs[1].stem)
    for path in folder.glob(f"{logs[1].stem}.*"):
        path.rename(path.with_name(path.name.replace(f"{number:020}", f"{number + by:020}")))
    ran = run("retention", tmp_path, "t", clock=clock)
    assert ran.exit_code == 1
    assert ("a segment's name does not match its batches" if by > 0 else "offset is too high for its segment") in ran.error
    assert str(folder) in ran.error
