"""`tidelog retention`: when segments go, and who keeps them."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import KAFKA_2, KAFKA_3, run, run_ok
from tidelog.clock import ManualClock
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager
from tidelog.storage.topics_file import Topic, write_topics

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
    assert lines[0] == "t-0: retention 7d, any size; high watermark 6, log end 6"
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
    # What lies behind it is as old as what goes now, and stays as long as it.
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
    write_topics(tmp_path, {"t": Topic("t", uuid.UUID(int=1), 1, {"cleanup.policy": "compact"})})
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
        "note: the folder does not know the configuration of __consumer_offsets, __transaction_state, compacted, deleted-prefix, "
        f"empty and {len({json.loads(one)['topic'] for one in _json_lines(KAFKA_3)}) - 5} more: Kafka's default is taken, "
        "retention 7d, any size"
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
        (("--retention", "soon"), "not a span of time: found 'soon'"),
        (("--retention", "99999999999999999w"), "a span of time is too long"),
        (("--retention", "-2"), "not a span of time: found '-2'"),
        (("--retention-bytes", "ten"), "not a size: found 'ten'"),
        (("--partition", "7"), "no partition 7"),
    ],
)
def test_what_makes_no_sense(arguments: tuple[str, ...], words: str) -> None:
    ran = run("retention", KAFKA_3, "two-partitions", *arguments)
    assert ran.exit_code == 1
    assert words in ran.error
