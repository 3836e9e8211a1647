"""Arrow batches: not too small, not too large, and little memory however large the log."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

import tidelog
from tests.sources.logs import TOPIC, LogBuilder
from tidelog.records.compression import Codec


@pytest.fixture(scope="module")
def many_small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45,000 records in batches of 30, segments of 10 KiB, three partitions."""
    data_dir = tmp_path_factory.mktemp("small")
    for partition in range(3):
        builder = LogBuilder(data_dir, partition, segment_bytes=10_000)
        for base in range(0, 15_000, 30):
            builder.append([(base + i, b"k", b"v" * 10) for i in range(30)])
        builder.close()
    return data_dir


def sizes(reader: pa.RecordBatchReader) -> list[int]:
    return [batch.num_rows for batch in reader]


@pytest.mark.parametrize("views", [False, True])
def test_small_batches_segments_and_partitions_are_put_together(many_small: Path, views: bool) -> None:
    found = sizes(tidelog.scan(many_small, TOPIC, views=views))
    assert sum(found) == 45_000
    assert all(10_000 <= rows <= 16_384 for rows in found[:-1])
    assert len(found) <= 5


def test_a_sparse_range_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record in ten is inside: Arrow batches are large all the same, although bytes run out before rows do."""
    monkeypatch.setattr("tidelog.sources.files.folder_batches.CHUNK_BYTES", 100_000)
    monkeypatch.setattr("tidelog.sources.split_reader.BATCH_BYTES", 200_000)
    builder = LogBuilder(tmp_path, segment_bytes=1 << 20)
    records = [(1 if i % 10 == 0 else 2, b"k", b"v" * 20) for i in range(1000)]
    for _ in range(200):
        builder.append(records)
    builder.close()
    for views in (False, True):
        found = sizes(tidelog.scan(tmp_path, TOPIC, end=2, views=views))
        assert sum(found) == 20_000
        assert all(rows >= 10_000 for rows in found[:-1])


@pytest.fixture(scope="module", params=[Codec.NONE, Codec.ZSTD])
def one_huge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A batch of 70,000 records."""
    data_dir = tmp_path_factory.mktemp("huge")
    builder = LogBuilder(data_dir, segment_bytes=1 << 30)
    builder.append([(i, b"%d" % i, None if i % 3 else b"value %d" % i) for i in range(70_000)], codec=request.param)
    builder.close()
    return data_dir


@pytest.mark.parametrize("batch_rows", [1, 7, 1000, 65_536, 1 << 30])
def test_one_huge_batch_is_cut(one_huge: Path, batch_rows: int) -> None:
    rows = {1: 2000, 7: 2000, 1000: 20_000}.get(batch_rows, 70_000)
    for views in (False, True):
        batches = list(tidelog.scan(one_huge, TOPIC, offsets={0: (0, rows)}, batch_rows=batch_rows, views=views))
        assert max(batch.num_rows for batch in batches) <= batch_rows
        assert min(batch.num_rows for batch in batches) >= min(rows, batch_rows) // 2
        table = pa.Table.from_batches(batches)
        assert table["offset"].to_pylist() == list(range(rows))
        assert table["key"].to_pylist() == [b"%d" % i for i in range(rows)]
        assert table["value"].to_pylist() == [None if i % 3 else b"value %d" % i for i in range(rows)]


def test_batches_larger_than_a_chunk(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=1 << 30)
    for i in range(4):
        builder.append([(i, b"k", os.urandom(3_000_000)), (i, b"k", b"small")])
        builder.append([(i, b"k", b"small")] * 10)
    builder.close()
    table = tidelog.scan(tmp_path, TOPIC).read_all()
    assert table["offset"].to_pylist() == [row.offset for row in builder.rows]
    assert table["value"].to_pylist() == [row.value for row in builder.rows]


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, segment_bytes=1 << 30)
    for i in range(160):
        builder.append([(i, b"k", b"v" * 1000)] * 1000)
    builder.close()
    assert builder.logs()[0].stat().st_size > 160_000_000
    tracemalloc.start()
    try:
        rows = sum(sizes(tidelog.scan(tmp_path, TOPIC)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 160_000
    assert peak < 120_000_000


def test_memory_of_a_sparse_scan_with_views(tmp_path: Path) -> None:
    """Views keep the log's bytes: where nearly nothing is kept, it is copied after all."""
    builder = LogBuilder(tmp_path, segment_bytes=1 << 30)
    for i in range(100):
        builder.append([(i % 100 + j % 2 * 1000, b"k", b"v" * 1000) for j in range(2000) if j % 2 or j == 0])
    builder.close()
    table = tidelog.scan(tmp_path, TOPIC, end=1000, views=True).read_all()
    assert table.num_rows == 100
    assert table.get_total_buffer_size() < 10_000_000


def test_unneeded_columns_are_not_built(many_small: Path) -> None:
    table = tidelog.scan(many_small, TOPIC, columns=["offset", "timestamp"]).read_all()
    assert table.nbytes <= 45_000 * 17
