"""A search by time is one call where this process has made the indexes: it finds what the search in steps finds."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, open_log, timed
from tidelog.errors import TidelogError
from tidelog.formats.non_blocking_read import non_blocking
from tidelog.records.kernel import COMPILED, first_indexed_match
from tidelog.storage.segment import segment_reader
from tidelog.storage.segment.index_file import IndexFile
from tidelog.storage.segment.log_segment import LogSegment


def found(segment: LogSegment, timestamp: int, start: int) -> Any:
    try:
        with non_blocking():
            return segment.find_offset_by_timestamp(timestamp, start)
    except TidelogError as error:
        return type(error)


@examples(100)
@given(st.integers(0, 2**32))
def test_both_searches_find_the_same(seed: int) -> None:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder), index_interval_bytes=draw.choice([0, 150, 4096]), segment_bytes=draw.choice([2000, 10**6]))
        now = NOW_MS
        for _ in range(draw.randrange(1, 40)):
            now += draw.choice([0, 1, 1, 50, -30])
            log.append_as_leader(timed([now + draw.randrange(-5, 5) for _ in range(draw.randrange(1, 5))]), 0)
        segment = log.segments.active
        if draw.random() < 0.2:
            path = segment.log.path
            content = bytearray(path.read_bytes())
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            path.write_bytes(content)
        for _ in range(12):
            timestamp = draw.choice([0, now, now + 100, NOW_MS + draw.randrange(-40, 100)])
            start = draw.randrange(segment.base_offset, log.log_end_offset + 1)
            found(segment, now, segment.base_offset)  # It estimates the size of batches by the last one.
            quick = found(segment, timestamp, start)
            with patch.object(IndexFile, "own_bytes", None):
                assert quick == found(segment, timestamp, start), (timestamp, start)
        log.close()


@pytest.mark.skipif(not COMPILED, reason="interpreted, all searches take the steps")
def test_it_is_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    for i in range(20):
        log.append_as_leader(timed([NOW_MS + i]), 0)
    segment = log.segments.active
    before = segment.find_offset_by_timestamp(NOW_MS + 7)
    calls: list[Any] = []

    def counted(*given: Any) -> Any:
        calls.append(first_indexed_match(*given))
        return calls[-1]

    monkeypatch.setattr(segment_reader, "first_indexed_match", counted)
    assert segment.find_offset_by_timestamp(NOW_MS + 7) == before
    assert calls == [(7, NOW_MS + 7, 0)]
    log.close()
