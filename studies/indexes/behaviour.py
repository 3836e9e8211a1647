"""The accepted design in the real engine when a log is truncated, stopped, killed and started.

| case | |
|---|---|
| truncation | entries before and after; finding the largest timestamp again, and the bytes scanned for it |
| starts | after a clean shutdown nothing is scanned, the last entries are correct; after a crash the active segment is scanned |
| staircase | the time index as it rises over an out-of-order log, for a plot |
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from studies.case import Case, Measurement, one_of
from studies.indexes.builders import TIME_ENTRY
from studies.indexes.side_by_side import HALF_LATE
from studies.indexes.written_log import TOPIC, WrittenLog, write_log
from studies.workload import DAY_MS, EPOCH_MS, MINUTE_MS, Workload, generate
from tidelog.clock import ManualClock
from tidelog.formats.names import HIGH_WATERMARK_CHECKPOINT
from tidelog.formats.time_index import TimeIndex
from tidelog.storage.loading.log_recovery import RecoveryProgress
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

PART = "behaviour"
TRUNCATION, STARTS, STAIRCASE = "truncation", "starts", "staircase"
SEGMENT_BYTES = 512 << 10
PROPERTIES = {"segment.bytes": SEGMENT_BYTES}
BATCH_RECORDS = 4


def workload(scale: float) -> Workload:
    """Return the workload: half of the messages arrive half an hour late."""
    return Workload("behaviour", 40, max(600, round(12_000 * scale)), 300.0, HALF_LATE, value_bytes=200)


def cases(scale: float) -> list[Case]:
    """Return the cases of the table above."""
    return [Case(PART, name, {"scale": scale}) for name in (TRUNCATION, STARTS, STAIRCASE)]


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Measure one case."""
    one_of([TRUNCATION, STARTS, STAIRCASE], case.name, "case")
    scale = float(case.parameters["scale"])
    if case.name == TRUNCATION:
        yield from _truncate(case, work_dir, scale)
    elif case.name == STARTS:
        yield from _start(case, work_dir, scale)
    else:
        yield from _climb(case, work_dir, scale)


def _truncate(case: Case, work_dir: Path, scale: float) -> Iterator[Measurement]:
    """Truncate the log by a quarter of the last segment, then into the first segment."""
    written = write_log(work_dir / "log", [(generate(workload(scale)), 0)], properties=PROPERTIES, batch_records=BATCH_RECORDS)
    # As on a follower: the truncated records are not known to be on other replicas.
    (work_dir / "log" / HIGH_WATERMARK_CHECKPOINT).unlink()
    with LogManager(work_dir / "log", ManualClock(EPOCH_MS + DAY_MS)) as manager:
        log = manager.log(TOPIC, 0)
        active = log.segments.active.base_offset
        for subject, target in (
            ("within the active segment", active + (log.log_end_offset - active) * 3 // 4),
            ("back into the first segment", max(1, log.segments.values()[0].read_next_offset() // 2)),
        ):
            for metric, value in _cut(log, target, written).items():
                yield Measurement(case.part, case.name, subject, metric, float(value))


def _cut(log: PartitionLog, target: int, written: WrittenLog) -> dict[str, float]:
    """Truncate a log at an offset; return the state of its time indexes."""
    entries = [
        segment.base_offset + relative
        for segment in log.segments
        for _, relative in TIME_ENTRY.iter_unpack(segment.time_index.to_bytes())
    ]
    segments, size = len(log.segments), log.size_bytes
    log.truncate_to(target)
    last = log.segments.active
    entry = last.time_index.last_entry
    # Truncation removes whole batches: the record at the target and the others of its batch.
    true = int(written.timestamps[last.base_offset : target - target % BATCH_RECORDS].max(initial=-1))
    return {
        "entries before": len(entries),
        "entries after": sum(segment.time_index.entries for segment in log.segments),
        "entries of records that stay": sum(offset < target for offset in entries),
        "segments before": segments,
        "segments after": len(log.segments),
        "bytes cut": size - log.size_bytes,
        "bytes walked": last.size_bytes - last.offset_index.lookup(entry.offset).position,
        "largest timestamp is right": last.max_timestamp_and_offset_so_far.timestamp == true,
        "last entry is the largest": entry.timestamp == true,
    }


def _start(case: Case, work_dir: Path, scale: float) -> Iterator[Measurement]:
    """Start on the folder after a clean shutdown, and on the folder of a killed process."""
    killed = work_dir / "killed"
    messages = generate(workload(scale))
    written = write_log(
        work_dir / "log",
        [(messages, 0)],
        properties=PROPERTIES,
        before_close=lambda log: shutil.copytree(log.directory.parent, killed),
    )
    for subject, folder in (("after a clean end", work_dir / "log"), ("after a crash", killed)):
        walked: dict[str, int] = {}
        before = _time_entries(folder / written.directory.name)

        def hear(progress: RecoveryProgress, walked: dict[str, int] = walked) -> None:
            walked["bytes"], walked["segments"] = progress.bytes_done, progress.segments_done

        with LogManager(folder, ManualClock(EPOCH_MS + DAY_MS), recovery_progress=hear) as manager:
            log = manager.log(TOPIC, 0)
            right = sum(_is_right(segment.base_offset, segment.largest_timestamp, log, written) for segment in log.segments)
            last_right = sum(_is_right(base, last, log, written) for base, last in before.items())
            yield Measurement(case.part, case.name, subject, "segments", float(len(log.segments)), "segments")
            active = float(log.segments.active.size_bytes)
        after = _time_entries(folder / written.directory.name)
        clean = _time_entries(written.directory)
        for metric, value, unit in (
            ("last entries that are the largest, before", last_right, "segments"),
            ("largest timestamps known", right, "segments"),
            ("bytes walked", walked.get("bytes", 0), "bytes"),
            ("segments walked", walked.get("segments", 0), "segments"),
            ("bytes of the log", sum(path.stat().st_size for path in written.directory.glob("*.log")), "bytes"),
            ("bytes of the active segment", active, "bytes"),
            ("last entries as after a clean end", float(after == clean), ""),
        ):
            yield Measurement(case.part, case.name, subject, metric, float(value), unit)


def _time_entries(directory: Path) -> dict[int, int]:
    """Return the timestamp of the last entry of each segment's time index."""
    found: dict[int, int] = {}
    for path in sorted(directory.glob("*.log")):
        index_path = path.with_suffix(".timeindex")
        base = int(path.stem)
        if index_path.exists():
            index = TimeIndex.open(index_path, base)
            found[base] = index.last_entry.timestamp
            index.close()
    return found


def _is_right(base: int, timestamp: int, log: PartitionLog, written: WrittenLog) -> bool:
    following = log.segments.higher(base)
    end = log.log_end_offset if following is None else following.base_offset
    return timestamp == int(written.timestamps[base:end].max())


def _climb(case: Case, work_dir: Path, scale: float) -> Iterator[Measurement]:
    """Return the timestamps of a small log's records, and its time index, as texts of numbers."""
    small = replace(workload(scale), records=max(120, min(190, round(190 * scale))), interval_ms=30_000.0, name="staircase")
    written = write_log(work_dir / "log", [(generate(small), 0)], properties={"index.interval.bytes": 512}, batch_records=2)
    index = TimeIndex.open(next(written.directory.glob("*.timeindex")), 0)
    entries = [index.entry(slot) for slot in range(index.entries)]
    index.close()
    minutes = (written.timestamps - written.timestamps.min()) / MINUTE_MS
    start = int(written.timestamps.min())
    for subject, xs, ys in (
        ("records", np.arange(len(minutes)).tolist(), minutes.round(2).tolist()),
        ("time index", [one.offset for one in entries], [round((one.timestamp - start) / MINUTE_MS, 2) for one in entries]),
    ):
        yield Measurement(case.part, case.name, subject, "xs", text=",".join(map(str, xs)))
        yield Measurement(case.part, case.name, subject, "ys", text=",".join(map(str, ys)))
