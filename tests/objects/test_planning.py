"""Many segments in object storage are looked at at a time, and a task fetches its next segment while it reads one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.objects.as_objects import as_objects
from tests.patience import PATIENCE_S
from tests.reader.build import LogBuilder, batch
from tidelog.model import TopicPartition
from tidelog.reader.segment import Segment
from tidelog.sources.files import folder_plan
from tidelog.sources.opening import open_source
from tidelog.sources.scan_plan import ScanRequest

__all__ = ["as_objects"]

SEGMENTS = 3
ROWS = 30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = LogBuilder(tmp_path / "events-0")
    for first in range(0, SEGMENTS * ROWS, ROWS):
        if first:
            builder.roll()
        builder.append(batch(first, range(first, first + ROWS), value=b"x" * 5_000))
    builder.close()
    return tmp_path


def meeting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, whose first calls from other threads wait for each other: alone, one fails."""
    barrier = threading.Barrier(SEGMENTS, timeout=PATIENCE_S)
    met: list[int] = []

    def wrapped(*given: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and len(met) < SEGMENTS:
            met.append(barrier.wait())
        return function(*given, **named)

    wrapped.__dict__["met"] = met
    return wrapped


@pytest.mark.usefixtures("as_objects")
def test_all_segments_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, extents = meeting(Segment.valid_end), meeting(folder_plan.extent_of)
    monkeypatch.setattr(Segment, "valid_end", ends)
    monkeypatch.setattr(folder_plan, "extent_of", extents)
    with open_source(str(folder)) as source:
        planned = source.plan(ScanRequest(topic="events"))
        assert source.ends([TopicPartition("events", 0)])[TopicPartition("events", 0)].end_offset == SEGMENTS * ROWS
    assert [split.first_offset for split in planned.splits] == [0, ROWS, 2 * ROWS]
    assert len(ends.met) == len(extents.met) == SEGMENTS  # type: ignore[attr-defined]


def test_a_local_folder_needs_no_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = meeting(Segment.valid_end)
    monkeypatch.setattr(Segment, "valid_end", ends)
    with open_source(str(folder)) as source:
        assert len(source.plan(ScanRequest(topic="events")).splits) == SEGMENTS
    assert not ends.met  # type: ignore[attr-defined]


@pytest.mark.usefixtures("as_objects")
@pytest.mark.parametrize("is_stream", [False, True])
def test_sparks_task_fetches_its_next_segments(is_stream: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.sources.scan_report import ScanReport
    from tidelog.spark.source import TidelogDataSource
    from tidelog.spark.stream.stream_tasks import StreamTask, read_task

    source = TidelogDataSource({"path": str(folder), "subscribe": "events", "minPartitions": "1"})
    reader = source.reader(source.schema())  # type: ignore[arg-type]
    (task,) = reader.partitions()
    assert len(task.value) == SEGMENTS
    fetched: set[str] = set()
    store = type(task.value[0].log_path.source.store)
    read = store.read

    def noted(self: Any, key: str, *given: Any) -> memoryview:
        fetched.add(key.rpartition("/")[2])
        return read(self, key, *given)

    monkeypatch.setattr(store, "read", noted)
    if is_stream:
        rows = read_task(StreamTask(task.value, True), ("offset",), 1, ScanReport())
    else:
        rows = reader.read(task)  # type: ignore[assignment]
    next(rows)
    deadline = time.monotonic() + PATIENCE_S
    wanted = {f"{first:020}.log" for first in range(0, SEGMENTS * ROWS, ROWS)}
    while not wanted <= fetched and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert wanted <= fetched
    rows.close()  # type: ignore[attr-defined]
