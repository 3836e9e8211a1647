"""Power loss at random: what was not synced is cut off, zeroed or overwritten, anywhere, and indexes are whatever they are.

Below the recovery point nothing is lost. What is loaded above it was there before, record for record; nothing torn is served; of
each segment it is the beginning. Loading it again finds the same, and the log goes on.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import NOW_MS, batch, open_log, records
from tidelog.formats.names import file_name
from tidelog.records.builder import Producer
from tidelog.storage.partition.partition_log import PartitionLog

PROPERTIES = {"segment_bytes": 800, "index_interval_bytes": 150, "segment_index_bytes": 240}

damages = st.lists(
    st.tuples(
        st.sampled_from(["cut", "zeros", "noise", "longer"]),
        st.integers(0, 10),  # which of the unsynced segments
        st.floats(0, 1),  # where in its unsynced part
        st.integers(1, 300),  # how much
    ),
    min_size=1,
    max_size=3,
)
indexes = st.lists(st.sampled_from(["gone", "zeros", "noise", "kept"]), min_size=3, max_size=3)


def filled(directory: Path, sizes: list[int], flushed: int, preallocate: bool) -> PartitionLog:
    """Batches of so many records each; the first `flushed` of them are synced."""
    log = open_log(directory, preallocate=preallocate, **PROPERTIES)
    for number, count in enumerate(sizes):
        producer = Producer(number % 3, 0, sum(sizes[number % 3 : number : 3]))
        log.append_as_leader(batch(timestamp=NOW_MS + number, count=count, value=b"%d" % number, producer=producer), 0)
        if number + 1 == flushed:
            log.flush()
    return log


def unsynced(log: PartitionLog, recovery_point: int) -> dict[int, tuple[int, int]]:
    """Base → the bytes of its `.log` that a power loss may take: those of batches at or above the recovery point."""
    found = {}
    for segment in log.segments.values(recovery_point, 2**62):
        start = next(
            (header.position for header in segment.batches() if header.last_offset >= recovery_point), segment.size_bytes
        )
        found[segment.base_offset] = (start, segment.size_bytes)
    return found


def damage(path: Path, kind: str, start: int, end: int, where: float, length: int) -> None:
    data = bytearray(path.read_bytes())
    at = start + int(where * (end - start))
    if kind == "cut":
        del data[at:]
    elif kind == "longer":
        data[end:end] = bytes((7 * i) % 251 for i in range(length))
    else:
        # Not less than a base offset and what a checksum covers after it: noise in the offset alone is seen by nobody.
        stop = min(end, at + max(length, 30))
        data[at:stop] = bytes(stop - at) if kind == "zeros" else bytes((11 * i + 3) % 253 for i in range(stop - at))
    path.write_bytes(data)


def damage_indexes(log: PartitionLog, kinds: list[str]) -> None:
    for suffix, kind in zip((".index", ".timeindex", ".snapshot"), kinds, strict=True):
        for path in sorted(log.directory.glob(f"*{suffix}"))[-2:]:
            if int(path.stem) < log.recovery_point or kind == "kept":
                continue
            if kind == "gone":
                path.unlink()
            else:
                size = path.stat().st_size
                path.write_bytes(bytes(size) if kind == "zeros" else bytes((13 * i + 5) % 241 for i in range(size)))


@examples(60)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=5, max_size=40),
    flushed=st.integers(0, 40),
    preallocate=st.booleans(),
    damages=damages,
    indexes=indexes,
)
def test_power_loss(
    sizes: list[int], flushed: int, preallocate: bool, damages: list[tuple[str, int, float, int]], indexes: list[str]
) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        log = filled(directory, sizes, flushed, preallocate)
        recovery_point, before = log.recovery_point, records(log)
        places = unsynced(log, recovery_point)
        log.close_handlers()
        for kind, number, where, length in damages:
            base = sorted(places)[number % len(places)]
            damage(log.directory / file_name(base, ".log"), kind, *places[base], where, length)
            if kind == "cut":
                start, end = places[base]
                places[base] = (start, min(end, start + int(where * (end - start))))
        damage_indexes(log, indexes)
        options = {"recovery_point": recovery_point, "preallocate": preallocate, **PROPERTIES}
        log = open_log(directory, clean=False, **options)
        found = records(log)
        by_offset = {record.offset: record for record in before}
        assert all(by_offset[record.offset] == record for record in found)
        assert [record for record in found if record.offset < recovery_point] == [
            record for record in before if record.offset < recovery_point
        ]
        for segment in log.segments:
            offsets = [offset for header in segment.batches() for offset in range(header.base_offset, header.next_offset)]
            assert offsets == list(range(segment.base_offset, segment.base_offset + len(offsets)))
        for record in found:
            at_its_time = log.fetch_offset_by_timestamp(record.timestamp)
            assert at_its_time is not None and at_its_time.offset <= record.offset
        log.close_handlers()
        log = open_log(directory, clean=False, **options)
        assert records(log) == found
        end = log.log_end_offset
        log.append_as_leader(batch(timestamp=NOW_MS + 1000), 0)
        assert [record.offset for record in records(log)] == [*(record.offset for record in found), end]
        log.close()
        log = open_log(directory, clean=True, **options)
        assert log.log_end_offset == end + 1
    finally:
        shutil.rmtree(directory)
