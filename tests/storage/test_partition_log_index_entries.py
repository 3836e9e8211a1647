"""Whatever is appended to a log: its indexes' entries grow, each names a batch, and says what is true (KIP-33)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import bases, batch, headers, offset_entries, open_log, records, time_entries, timed
from tidelog.formats.names import file_name
from tidelog.reader.log import Log


def test_the_last_entry_is_written_at_the_roll_and_at_the_close(tmp_path: Path) -> None:
    """KIP-33: then the last entry is the segment's largest timestamp. Before that the largest may have no entry yet."""
    log = open_log(tmp_path, index_interval_bytes=1 << 20)
    for time in (10, 30, 20):
        log.append_as_leader(batch(0, time), 0)
    assert log.segments.active.time_index.entries == 0
    log.roll()
    assert time_entries(log.directory, 0) == [(30, 1)]
    log.append_as_leader(batch(0, 5), 0)
    assert log.segments.active.time_index.entries == 0
    log.close()
    assert time_entries(log.directory, 3) == [(5, 3)]


def test_the_time_index_of_the_active_segment_is_made_empty_at_its_first_append(tmp_path: Path) -> None:
    """KIP-33 makes the file with the segment. Kafka and Tidelog make it when the first append asks whether it is full."""
    log = open_log(tmp_path, index_interval_bytes=100)
    path = log.directory / file_name(0, ".timeindex")
    assert not path.exists()
    log.append_as_leader(batch(0, 10), 0)
    assert path.exists()
    assert not any(path.read_bytes())
    log.append_as_leader(batch(0, 20, 10), 0)
    log.append_as_leader(batch(0, 30), 0)
    log.segments.active.write_index_entries()
    assert path.read_bytes()[:12] == (30).to_bytes(8, "big") + (11).to_bytes(4, "big")
    assert not any(path.read_bytes()[12:])
    log.roll()
    assert not (log.directory / file_name(12, ".timeindex")).exists()


@examples(40)
@given(
    timestamps=st.lists(st.lists(st.integers(-1, 5000), min_size=1, max_size=4), min_size=1, max_size=40),
    segment_bytes=st.integers(400, 3000),
    segment_ms=st.integers(1, 6000),
    interval=st.integers(0, 600),
    index_bytes=st.integers(24, 200),
)
def test_index_invariants(
    tmp_path_factory: pytest.TempPathFactory,
    timestamps: list[list[int]],
    segment_bytes: int,
    segment_ms: int,
    interval: int,
    index_bytes: int,
) -> None:
    """Up to an entry (T, o) no batch exceeds T, the batch that ends at o reaches it, and the last entry is the largest of all."""
    directory = tmp_path_factory.mktemp("log")
    log = open_log(
        directory,
        segment_bytes=segment_bytes,
        segment_ms=segment_ms,
        index_interval_bytes=interval,
        segment_index_bytes=index_bytes,
    )
    for times in timestamps:
        log.append_as_leader(timed(times), 0)
    expected = [time for times in timestamps for time in times]
    assert [(record.offset, record.timestamp) for record in records(log)] == list(enumerate(expected))
    written = headers(log)
    all_bases = bases(log)
    log.flush(force_active=True)
    log.close()
    for base, next_base in zip(all_bases, [*all_bases[1:], log.log_end_offset], strict=True):
        found = [header for header in written if base <= header.base_offset < next_base]
        by_position = {header.position: header for header in found}
        offsets, times = offset_entries(log.directory, base), time_entries(log.directory, base)
        assert all(by_position[entry.position].last_offset == entry.offset for entry in offsets)
        assert [entry.offset for entry in offsets] == sorted({entry.offset for entry in offsets})
        assert [entry.timestamp for entry in times] == sorted({entry.timestamp for entry in times})
        for timestamp, offset in times:
            assert all(header.max_timestamp <= timestamp for header in found if header.last_offset <= offset)
            assert any(header.max_timestamp == timestamp and header.last_offset == offset for header in found)
        largest = max(header.max_timestamp for header in found)
        assert (times[-1].timestamp if times else -1) == largest
    with Log.open(log.directory) as opened:
        assert opened.log_end_offset == len(expected)
