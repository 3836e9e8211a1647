"""`tidelog.sources.latency` against what a message at a time says: which time each format keeps, and counts of delays."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.clock import ManualClock
from tidelog.errors import CorruptBatchError
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.sources.files.folder_split import FolderSplit
from tidelog.sources.latency import SCHEMA, count_delays, largest_create_time
from tidelog.sources.plan import plan
from tidelog.storage.log_manager import LogManager

NOW_MS = 1_700_000_000_000
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}

Counted = Counter[tuple[str, int | None, int | None]]


class Step(NamedTuple):
    """One append: the topic as it is then, how far the clock has moved, and how long each record was under way."""

    magic: int
    timestamp_type: str
    codec: Codec
    advance_ms: int
    delays_ms: list[int]


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([2, 2, 2, 1, 0]),
        st.sampled_from(["CreateTime", "LogAppendTime"]),
        st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]),
        st.integers(0, 100_000),
        st.lists(st.integers(-200_000, 300_000), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=8,
)


def append(folder: Path, made: list[Step]) -> Counted:
    """Append to a topic of many small segments; return what is to be counted."""
    clock = ManualClock(NOW_MS)
    expected: Counted = Counter()
    largest = -1
    with LogManager(folder, clock) as manager:
        manager.create_topic("t", 1)
        for step in made:
            clock.advance(step.advance_ms)
            manager.alter_config(
                "t",
                {
                    "message.timestamp.type": step.timestamp_type,
                    "message.format.version": FORMATS[step.magic],
                    "segment.bytes": 300,
                    "retention.ms": -1,
                },
            )
            now_ms = clock.now_ms()
            records = [Record(i, now_ms - delay, CREATE_TIME, b"k", b"v") for i, delay in enumerate(step.delays_ms)]
            manager.log("t", 0).append_as_leader(build_batch_v2(records, codec=step.codec), leader_epoch=0)
            for record in records:
                made_ms = record.timestamp
                assert made_ms is not None
                if step.magic == 0:
                    expected["unknown", None, None] += 1
                elif step.timestamp_type == "CreateTime":
                    largest = max(largest, made_ms)
                    expected["lateness", made_ms - made_ms % 60_000, largest - made_ms] += 1
                elif step.magic == 1:
                    expected["unknown", now_ms - now_ms % 60_000, None] += 1
                else:
                    expected["latency", now_ms - now_ms % 60_000, now_ms - made_ms] += 1
    return expected


def counted(splits: tuple[FolderSplit, ...]) -> Counted:
    """Count by splits, each told what was largest before it, as the job does."""
    found: Counted = Counter()
    before = -1
    for split in splits:
        for batch in count_delays(split, before):
            assert batch.schema == SCHEMA
            for row in batch.to_pylist():
                found[row["kind"], row["minute_ms"], row["value_ms"]] += row["records"]
        before = max(before, largest_create_time(split))
    return found


@examples(20)
@given(steps)
def test_counts_are_those_of_the_messages(made: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = append(Path(folder), made)
        splits = plan(folder, "t").splits
        assert counted(splits) == expected


def test_every_format_and_type_in_one_log(tmp_path: Path) -> None:
    made = [
        Step(magic, timestamp_type, codec, 1_000, [5, 70_000, -3])
        for magic in (2, 1, 0)
        for timestamp_type in ("CreateTime", "LogAppendTime")
        for codec in (Codec.NONE, Codec.GZIP)
    ]
    expected = append(tmp_path, made)
    assert {kind for kind, _, _ in expected} == {"latency", "lateness", "unknown"}
    splits = plan(tmp_path, "t").splits
    assert len(splits) >= 5
    assert counted(splits) == expected


def test_largest_create_time_begins_at_the_log_start_inside_a_batch(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with LogManager(tmp_path, clock) as manager:
        manager.create_topic("t", 1)
        log = manager.log("t", 0)
        records = [Record(i, NOW_MS - i, CREATE_TIME, None, b"v") for i in range(4)]
        log.append_as_leader(build_batch_v2(records), leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)
        log.delete_records(2)
    (split,) = plan(tmp_path, "t").splits
    assert largest_create_time(split) == NOW_MS - 2
    assert counted((split,)) == Counter({("lateness", (NOW_MS - 3) // 60_000 * 60_000, delay): 1 for delay in (0, 1)})


def test_many_different_delays_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.sources.latency._GROUPS", 10)
    expected = append(tmp_path, [Step(2, "LogAppendTime", Codec.NONE, 100, [i, i, i + 1]) for i in range(40)])
    assert counted(plan(tmp_path, "t").splits) == expected


def test_damage_is_told(tmp_path: Path) -> None:
    append(tmp_path, [Step(2, "LogAppendTime", Codec.NONE, 100, [1, 2])])
    (split,) = plan(tmp_path, "t").splits
    path = Path(split.path)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatchError, match="checksum"):
        list(count_delays(split))
