"""The effect of index.interval.bytes and batch size on the time index: they change only the work of a look-up, not its result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.indexes.readers import TimeIndexReader
from studies.indexes.side_by_side import look_up_all, targets
from studies.indexes.written_log import WalkedLog, write_log
from studies.workload import SMALL_LATENCY, Workload, generate

PART = "density"
INTERVALS = (1 << 10, 4 << 10, 16 << 10, 64 << 10)
BATCH_RECORDS = (1, 10, 100)
SEGMENT_BYTES = 1 << 20


def workload(scale: float) -> Workload:
    """Return the workload."""
    return Workload("density", 63, max(300, round(6_000 * scale)), 20.0, SMALL_LATENCY, value_bytes=600)


def cases(scale: float) -> list[Case]:
    """Return one case for each batch size."""
    return [Case(PART, f"batches of {records}", {"batch_records": records, "scale": scale}) for records in BATCH_RECORDS]


def interval_name(interval_bytes: int) -> str:
    """Return an interval's name in the measurements."""
    return f"{interval_bytes >> 10} KiB"


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Write the same messages under each interval, and look up the same times."""
    scale = float(case.parameters["scale"])
    messages = generate(workload(scale))
    wanted = targets(np.sort(messages.create_ms), scale)
    for interval in INTERVALS:
        subject = interval_name(interval)
        properties = {"index.interval.bytes": interval, "segment.bytes": SEGMENT_BYTES}
        written = write_log(
            work_dir / str(interval),
            [(messages, 0)],
            properties=properties,
            batch_records=int(case.parameters["batch_records"]),
        )
        with WalkedLog(written.directory) as log:
            reader = TimeIndexReader(log)
            found = look_up_all(reader, written.timestamps, wanted)
            reader.close()
            log_bytes = sum(segment.size_bytes for segment in log.segments)
            for metric, value, unit in (
                ("entries", reader.entries, "entries"),
                ("bound", log_bytes / interval + len(log.segments), "entries"),
                ("bytes", reader.entries * reader.entry_bytes, "bytes"),
                ("log bytes", log_bytes, "bytes"),
                ("mean batch", log_bytes / written.batches, "bytes"),
                ("look-ups", len(wanted), "look-ups"),
                ("inexact answers", found.inexact, "look-ups"),
                ("records missed", found.missed, "records"),
                ("log bytes a look-up, mean", float(np.mean(found.log_bytes)), "bytes"),
                ("log bytes a look-up, p99", float(np.percentile(found.log_bytes, 99)), "bytes"),
                ("records before the answer, mean", float(np.mean(found.early or [0])), "records"),
            ):
                yield Measurement(case.part, case.name, subject, metric, float(value), unit)
