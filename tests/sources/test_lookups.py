"""Many searches by time at once: the answers of a plain walk over all records, and those of single searches."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.reader.golden import Case, cases
from tests.sources.logs import TOPIC
from tests.sources.test_property import NOON, steps, write
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError, UnsupportedForMessageFormatError
from tidelog.reader import proven_head
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_search import find_offset
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record, iter_records
from tidelog.sources import lookups
from tidelog.sources.lookups import search_offsets
from tidelog.storage.log_manager import LogManager

pytestmark = pytest.mark.usefixtures("quiet")


def plain(log: Log, times: list[int]) -> list[tuple[int, int]]:
    """For each time the first of all records that is not earlier."""
    records = [
        (record.offset, record.timestamp)
        for segment, header in log.segment_headers()
        for record in iter_records(header, segment.read_batch(header))
        if record.offset >= log.log_start_offset
    ]
    return [next((record for record in records if record[1] >= time), (-1, -1)) for time in times]


def found(log: Log, times: list[int]) -> list[tuple[int, int]]:
    answers = search_offsets(log, np.array(times, np.int64))
    return list(zip(answers.offsets.tolist(), answers.timestamps.tolist(), strict=True))


def one_by_one(log: Log, times: list[int]) -> list[tuple[int, int]]:
    answers = [find_offset(log, time) for time in times]
    return [(-1, -1) if answer is None else (answer.offset, answer.timestamp) for answer in answers]


moments = st.lists(st.one_of(st.integers(NOON - 2, NOON + 40), st.integers(0, 4)), max_size=40)


@examples(30, suppress_health_check=list(HealthCheck))
@given(
    happened=st.lists(steps(), min_size=1, max_size=25),
    times=moments,
    indexes=st.sampled_from([{".index", ".timeindex"}, {".index"}, {".timeindex"}, set()]),
    segment_bytes=st.sampled_from([200, 1500, 1 << 20]),
    log_start=st.one_of(st.none(), st.integers(0, 60)),
    jump_bytes=st.sampled_from([1, 300, 1 << 18]),
)
def test_any_log_gives_the_answers_of_a_plain_walk(
    happened: list[dict[str, Any]],
    times: list[int],
    indexes: set[str],
    segment_bytes: int,
    log_start: int | None,
    jump_bytes: int,
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookups, "JUMP_BYTES", jump_bytes)
        how = {"segment_bytes": segment_bytes, "indexes": frozenset(indexes), "index_interval_bytes": 100}
        builder = write(Path(folder), happened, **how)
        builder.close(log_start=None if log_start is None else min(log_start, builder.next_offset))
        with LogDir(folder).log(TOPIC, 0, message_format=2) as log:
            expected = plain(log, times)
            assert found(log, times) == expected
        with LogDir(folder).log(TOPIC, 0, message_format=2) as log:
            assert one_by_one(log, times) == expected


@pytest.mark.parametrize("case", cases(), ids=str)
def test_golden(case: Case) -> None:
    with case.open() as log:
        if log.message_format == 0:
            with pytest.raises(UnsupportedForMessageFormatError):
                search_offsets(log, np.array([0]))
            return
        records = [
            record.timestamp
            for segment, header in log.segment_headers()
            for record in iter_records(header, segment.read_batch(header))
        ]
        times = [0, *(max(0, timestamp + delta) for timestamp in records for delta in (-1, 0, 1))]
        times = times[:: max(1, len(times) // 60)]
        assert found(log, times) == one_by_one(log, times)


@pytest.mark.parametrize("shift", [-500, 500])
def test_largest_timestamps_that_are_not_true(tmp_path: Path, shift: int) -> None:
    """Batches of somebody else may claim too much or too little; a single search believes what is too small, and so do we."""
    from struct import Struct

    from crc32c import crc32c

    batches = []
    for i in range(200):
        batch = bytearray(build_batch_v2([Record(i, 1000 + 10 * i, CREATE_TIME, None, b"v")], base_offset=i))
        if i % 7 == 3:
            Struct(">q").pack_into(batch, 35, 1000 + 10 * i + shift)
            Struct(">I").pack_into(batch, 17, crc32c(batch[21:]))
        batches.append(bytes(batch))
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    times = list(range(900, 3600, 3))
    with Log.open(directory) as log, Log.open(directory) as other:
        assert found(log, times) == one_by_one(other, times)


def test_little_is_read_for_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proven_head, "MAX_BYTES", 0)  # As in a log that is too large to walk its head.
    clock = ManualClock(NOON)
    with LogManager(tmp_path, clock) as manager:
        manager.create_topic("t", 1, {"segment.bytes": 4_000_000})
        log = manager.log("t", 0)
        for i in range(2_000):
            log.append_as_leader(build_batch_v2([Record(0, NOON + 10 * i, CREATE_TIME, None, b"x" * 5_000)]), leader_epoch=0)
    size = sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
    times = [NOON + 10 * i for i in (3, 700, 701, 1_500)]
    with LogDir(tmp_path).log("t", 0) as log:
        assert found(log, times) == [(i, NOON + 10 * i) for i in (3, 700, 701, 1_500)]
        assert sum(segment.bytes_read for segment in log.segments) < size / 10


def test_what_cannot_be_looked_up(tmp_path: Path) -> None:
    with LogManager(tmp_path, ManualClock(NOON)) as manager:
        manager.create_topic("t", 1)
    with LogDir(tmp_path).log("t", 0) as log:
        assert found(log, [5, 5]) == [(-1, -1)] * 2 and found(log, []) == []
        with pytest.raises(InvalidArgumentError, match="before 1970"):
            search_offsets(log, np.array([3, -1]))
