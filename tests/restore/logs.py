"""Backups of logs that the tests build, and the plain model that restores are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import tidelog
from tests.sources.logs import TOPIC, LogBuilder, Row
from tidelog.backup.target import open_target
from tidelog.capture.capture import Capture, Selection
from tidelog.capture.folder_capture import FolderCapture
from tidelog.clock import ManualClock
from tidelog.records.compression import Codec
from tidelog.restore.cuts import plan_restore
from tidelog.restore.request import RestoreRequest
from tidelog.restore.restoring import restore

NOON = 1_373_457_600_000
STEP_MS = 1000


@dataclass
class History:
    """A log that was appended to while a backup took points."""

    builder: LogBuilder
    backup: Path
    marks: dict[int, int] = field(default_factory=dict)
    """Offsets and times of markers."""
    ended: dict[int, int] = field(default_factory=dict)
    """For each offset of a transactional batch's first record, where its marker is."""
    points: list[tuple[int, int]] = field(default_factory=list)
    """Time and end offset of each point."""

    def cut(self, until_ms: int, below: int) -> int:
        """Return the first offset at or after a time, markers counted as Kafka's search does."""
        times = {row.offset: row.timestamp for row in self.builder.rows} | self.marks
        return min((offset for offset, time in times.items() if time >= until_ms and offset < below), default=below)

    def committed(self, cut: int) -> list[Row]:
        """Return what a read_committed consumer gets of the first `cut` offsets, if transactions without an end are left out."""
        aborted = [(producer, first, last) for producer, first, last in self.builder.aborted]
        rows = []
        for row in self.builder.rows:
            if row.offset >= cut:
                continue
            if row.producer_id >= 0:
                end = min((mark for mark in self.ends_of(row.producer_id) if mark > row.offset), default=None)
                if end is None or end >= cut:
                    continue
                if any(row.producer_id == producer and first <= row.offset <= last for producer, first, last in aborted):
                    continue
            rows.append(row)
        return rows

    def ends_of(self, producer_id: int) -> list[int]:
        return [mark for mark, producer in self.ended.items() if producer == producer_id]


def history(folder: Path, seed: int, batches: int = 60) -> History:
    """Write a random log, with late records, transactions, gaps and old formats, and take points of it."""
    random = Random(seed)
    builder = LogBuilder(folder / "log", segment_bytes=random.choice([700, 2000, 100_000]))
    clock = ManualClock(NOON)
    source = FolderCapture(str(folder / "log"))
    made = History(builder, folder / "backup")
    capture: Capture | None = None
    begins_old = random.random() < 0.3
    for number in range(batches):
        now_ms = NOON + number * STEP_MS
        late_ms = random.choice([0, 0, 0, random.randrange(40 * STEP_MS), -random.randrange(5 * STEP_MS)])
        records = [
            (
                now_ms - late_ms + random.randrange(-300, 300),
                random.choice([None, b"k%d" % n]),
                random.choice([None, b"v%d" % n, b""]),
            )
            for n in range(random.randrange(1, 6))
        ]
        kind = random.random()
        if begins_old and number < batches // 3:
            builder.append(records, magic=1, codec=random.choice([Codec.NONE, Codec.GZIP]))
        elif kind < 0.3:
            builder.append(records, codec=random.choice(list(Codec)), headers=(("h", b"x"), ("n", None)))
        elif kind < 0.4 and len(records) > 1:
            builder.append(records, gaps=[random.randrange(len(records))])
        elif kind < 0.5:
            builder.append(records, append_time=now_ms)
        elif kind < 0.8:
            builder.append(records, producer_id=random.choice([7, 8, 9]))
        elif builder.open:
            producer = random.choice(sorted(builder.open))
            made.marks[builder.next_offset] = now_ms
            made.ended[builder.next_offset] = producer
            builder.end_transaction(producer, now_ms, commit=random.random() < 0.6)
        else:
            builder.append(records)
        clock.advance(now_ms - clock.now_ms())
        if random.random() < 0.15 or number == batches - 1:
            capture = capture or Capture(source, open_target(str(made.backup)), clock, Selection())
            capture.take()
            made.points.append((now_ms, min(builder.open.values(), default=builder.next_offset)))
    builder.close()
    return made


class Backed:
    """A data folder, and a backup of it."""

    def __init__(self, root: Path) -> None:
        self.data, self.backup = root / "data", root / "backup"
        self.clock = ManualClock(NOON)
        self._capture: Capture | None = None

    def log(self, topic: str, partition: int = 0) -> LogBuilder:
        return LogBuilder(self.data, partition, topic=topic, segment_bytes=1 << 30)

    def take(self) -> None:
        self._capture = self._capture or Capture(
            FolderCapture(str(self.data)), open_target(str(self.backup)), self.clock, Selection()
        )
        self._capture.take()
        self.clock.advance(1000)

    def rows(self, place: str | Path, topic: str, until_ms: int | None = None, **options: Any) -> list[tuple[Any, ...]]:
        request = RestoreRequest(backup=str(self.backup), target=str(place), until_ms=until_ms, **options)
        report = restore(plan_restore(request), self.clock, work=self.backup.parent / f"work-{topic}-{until_ms}")
        assert report.differences == []
        return plain(tidelog.scan(place, topic).read_all().to_pylist())


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"]) for row in rows]


def of_model(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.offset, row.timestamp, row.key, row.value) for row in rows]


__all__ = ["NOON", "STEP_MS", "TOPIC", "Backed", "History", "history", "of_model", "plain"]
