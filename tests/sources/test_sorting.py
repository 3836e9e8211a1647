"""Sorting by time in temporary files: the order, the memory, the files, and what happens when the disk is full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import StorageError
from tidelog.sources.schema import scan_schema
from tidelog.sources.selection import sorting

LARGE_BYTES = 40_000

Record = tuple[int | None, int, int]
"""A record's time, partition, and the size of its value."""


def batch_of(records: list[Record], first_offset: int) -> pa.RecordBatch:
    schema = scan_schema()
    rows = len(records)
    columns = {
        "topic": pa.array(["t"] * rows, pa.string()),
        "partition": pa.array([partition for _, partition, _ in records], pa.int32()),
        "offset": pa.array(range(first_offset, first_offset + rows), pa.int64()),
        "timestamp": pa.array([time for time, _, _ in records], pa.int64()).cast(schema.field("timestamp").type),
        "value": pa.array([b"v" * size for _, _, size in records], pa.binary()),
    }
    return pa.RecordBatch.from_arrays([columns.get(field.name, pa.nulls(rows, field.type)) for field in schema], schema=schema)


def keys_of(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> list[tuple[bool, int, int, int, int]]:
    return [
        (time is not None, time or 0, partition, offset, len(value))
        for batch in batches
        for time, partition, offset, value in zip(
            batch.column("timestamp").cast(pa.int64()).to_pylist(),
            *(batch.column(name).to_pylist() for name in ("partition", "offset", "value")),
            strict=True,
        )
    ]


SIZES = st.sampled_from([0, 1, 10, 300, 3000, LARGE_BYTES])
RECORDS = st.tuples(st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 2), SIZES)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=st.lists(st.lists(RECORDS, min_size=1, max_size=12), max_size=20), fan_in=st.integers(2, 5))
def test_runs_in_files_are_merged_into_the_same_order(
    batches: list[list[Record]], fan_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "RUN_BYTES", 2000)
    monkeypatch.setattr(sorting, "BLOCK_BYTES", 500)
    monkeypatch.setattr(sorting, "FAN_IN", fan_in)
    made = [batch_of(records, 100 * number) for number, records in enumerate(batches)]
    found = list(sorting.sorted_by_time(made))
    assert keys_of(found) == sorted(keys_of(made))
    assert all(batch.num_rows == 1 or batch.nbytes < LARGE_BYTES for batch in found)


def test_files_have_no_names_and_are_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sorting, "RUN_BYTES", 1000)
    before = set(Path("/proc/self/fd").iterdir())
    records = sorting.sorted_by_time(batch_of([(9 - n, 0, 500)] * 3, 10 * n) for n in range(9))
    assert next(records).num_rows
    assert list(tmp_path.iterdir()) == []
    records.close()  # type: ignore[attr-defined]  # a generator
    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_a_full_disk_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "RUN_BYTES", 1000)
    monkeypatch.setattr(sorting, "TemporaryFile", lambda prefix: Path("/dev/full").open("wb+", 0))  # noqa: SIM115
    with pytest.raises(StorageError, match="cannot sort by time in a temporary file: No space left"):
        list(sorting.sorted_by_time(batch_of([(n, 0, 500)] * 3, 10 * n) for n in range(9)))


MEASURED = """
import pyarrow as pa
pa.set_memory_pool(pa.system_memory_pool())
from pathlib import Path
from tests.sources.test_sorting import batch_of
from tidelog.sources.selection.sorting import RUN_BYTES, sorted_by_time

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024

list(sorted_by_time([batch_of([(1, 0, 1)], 0)]))
before = peak()
batches = (batch_of([(1000 - number + at, 0, 8000) for at in range(128)], 128 * number) for number in range(164))
size = rows = 0
for batch in sorted_by_time(batches):
    size, rows = size + batch.nbytes, rows + batch.num_rows
assert rows == 164 * 128 and size > 10 * RUN_BYTES, (rows, size)
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_records() -> None:
    ran = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 4 * sorting.RUN_BYTES
