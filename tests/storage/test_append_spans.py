"""Spans stand for their batches: appended by spans, a segment gets the same index entries as by all headers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.records.kernels import KERNELS
from tests.storage.segment_files import batch, messages, open_segment
from tidelog.config import LogConfig
from tidelog.records import kernel
from tidelog.records.batch import iter_headers
from tidelog.storage.segment.append_spans import append_spans
from tidelog.storage.segment.log_segment import LogSegment

parts = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 40)), min_size=1, max_size=30)


@pytest.mark.parametrize("kind", KERNELS)
@examples(100)
@given(appends=st.lists(parts, min_size=1, max_size=4), interval=st.sampled_from([0, 1, 80, 200, 1000]))
def test_the_same_entries(kind: str, appends: list[list[tuple[int, int, int]]], interval: int) -> None:
    config = LogConfig(segment_index_bytes=1 << 16, index_interval_bytes=interval)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "append_spans", KERNELS[kind].append_spans)
        whole, spanned = (open_segment(make(Path(folder) / name), 0, config) for name in ("whole", "spanned"))
        offset = 0
        for chosen in appends:
            data = b""
            for magic, timestamp, size in chosen:
                value = "v" * size
                data += (
                    batch(offset, [timestamp], value=value.encode())
                    if magic == 2
                    else messages(offset, value, magic=magic, timestamp=timestamp if magic else -1)
                )
                offset += 1
            headers = list(iter_headers(data))
            whole.append(offset - 1, headers, data)
            spans, last = append_spans(data, spanned.bytes_since_last_index_entry, interval)
            assert last == offset - 1
            assert sum(span.size for span in spans) == len(data)
            assert len(spans) <= len(headers)
            spanned.append(last, spans, data)
            assert facts(spanned) == facts(whole)
        whole.close()
        spanned.close()


def test_many_small_batches_are_few_spans() -> None:
    data = b"".join(batch(offset, [1]) for offset in range(2000))
    spans, last = append_spans(data, 0, 4096)
    assert last == 1999
    assert len(spans) < 3 + 2 * len(data) / 4096


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_partial_batch_is_refused(kind: str, cut: int) -> None:
    data = batch(0, [1]) + batch(1, [2])
    with pytest.raises(ValueError, match="follow the last whole batch"):
        KERNELS[kind].append_spans(data[:-cut], 0, 100)


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def facts(segment: LogSegment) -> tuple[object, ...]:
    indexes = segment.offset_index, segment.time_index
    return (
        [[index.entry(slot) for slot in range(index.entries)] for index in indexes],
        segment.max_timestamp_and_offset_so_far,
        segment.bytes_since_last_index_entry,
        segment.first_batch_timestamp,
    )
