"""A time index in a bucket that hides a late record, and agrees with all the batches that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.objects.test_object_file import Memory
from tests.reader.build import LogBuilder, batch
from tests.reader.hint_damage import TIME_ENTRY
from tidelog.formats import names
from tidelog.model import TopicPartition
from tidelog.objects import stores
from tidelog.objects.address import with_options
from tidelog.reader.time_map_file import write_time_map
from tidelog.sources.opening import open_source

BATCHES = 1_000
LATE, LATE_MS = 5, 10 * BATCHES
"""This batch is later than all others, and every search for a later time must begin with it."""


@pytest.mark.parametrize("with_map", [True, False])
def test_a_lying_time_index(
    tmp_path: Path, with_map: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A time map proves it wrong, without reading the log; without one a note says what is trusted, and what to do."""
    builder = LogBuilder(tmp_path / "t-0", interval_bytes=0)
    builder.append(*(batch(offset, [LATE_MS if offset == LATE else offset], value=bytes(4_000)) for offset in range(BATCHES)))
    builder.close()
    if with_map:
        write_time_map(builder.file(0, names.LOG_SUFFIX))
    lie = b"".join(TIME_ENTRY.pack(offset, offset) for offset in range(BATCHES) if offset != LATE)
    builder.file(0, names.TIME_INDEX_SUFFIX).write_bytes(lie)
    store = Memory({f"t-0/{path.name}": path.read_bytes() for path in (tmp_path / "t-0").iterdir()})
    monkeypatch.setattr(stores, "open_store", lambda place, options: store)
    with open_source(with_options("s3://bucket", {"cache_bytes": "0"})) as source:
        found = source.find({TopicPartition("t", 0): BATCHES - 100})[TopicPartition("t", 0)]
    assert found is not None
    notes = " ".join(record.getMessage() for record in caplog.records)
    if with_map:
        assert found[:2] == (LATE, LATE_MS)
        assert "trusted" not in notes
    else:
        assert "checking every batch's timestamp would fetch the whole log from remote storage" in notes
        assert "tidelog index verify" in notes
        assert "tidelog index rebuild --time-map" in notes
    assert sum(end - start for key, start, end in store.reads if key.endswith(".log")) < 1_000_000
