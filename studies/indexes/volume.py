"""Index bytes per day and partition at three message rates, compared with the documents' table; and the number of open files.

The document assumes an entry for each second (minute) of a day. A log gets an entry only after index.interval.bytes, so the
number depends on the rate: one message in ten seconds, just enough messages for an entry per second, and a busy log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from studies.case import Case, Measurement, one_of
from studies.indexes.builders import EntryFiles, GranularIndex, MinuteMap, WideOffsetIndex
from studies.indexes.side_by_side import MINUTE_INDEX, MINUTE_MAP, SECOND_INDEX, TIME_INDEX, WIDE
from studies.indexes.written_log import write_log
from studies.workload import DAY_MS, MINUTE_MS, SECOND_MS, SMALL_LATENCY, Workload, generate
from tidelog.config import LOG_APPEND_TIME
from tidelog.storage.partition.partition_log import PartitionLog

PART = "volume"
OFFSET_INDEX = "offset index"
RATES = {"one message in ten seconds": 10_000.0, "an entry a second": 1_000.0, "ten entries a second": 100.0}
"""The mean time (ms) from one message to the next. Each message is larger than an index interval, except at the slowest rate."""

VALUE_BYTES = {"one message in ten seconds": 1_000, "an entry a second": 4_100, "ten entries a second": 4_100}


def workload(rate: str, scale: float) -> Workload:
    """Return the workload of a rate."""
    one_of(list(RATES), rate, "rate")
    records = max(200, round(3_600 * scale))
    return Workload(rate, 86_400, records, RATES[rate], SMALL_LATENCY, value_bytes=VALUE_BYTES[rate])


def cases(scale: float) -> list[Case]:
    """Return one case for each rate."""
    return [Case(PART, rate, {"scale": scale}) for rate in RATES]


def measure(case: Case, work_dir: Path) -> Iterator[Measurement]:
    """Write part of a day, and scale the sizes of the indexes to a day."""
    messages = generate(workload(case.name, float(case.parameters["scale"])))
    folder = work_dir / "designs"
    builders: dict[str, EntryFiles] = {
        MINUTE_INDEX: GranularIndex(folder / "minute", MINUTE_MS),
        SECOND_INDEX: GranularIndex(folder / "second", SECOND_MS),
        MINUTE_MAP: MinuteMap(folder / "map"),
        WIDE: WideOffsetIndex(folder / "wide"),
    }
    open_files: list[str] = []
    lengths: dict[str, int] = {}

    def look(log: PartitionLog) -> None:
        open_files.extend(open_in(log.directory))
        active = log.segments.active
        lengths["preallocated .index"] = active.offset_index.length_bytes
        lengths["preallocated .timeindex"] = active.time_index.length_bytes

    written = write_log(
        work_dir / "log",
        [(messages, 0)],
        list(builders.values()),
        properties={"message.timestamp.type": LOG_APPEND_TIME},
        batch_records=1,
        before_close=look,
    )
    span_ms = int(written.append_ms[-1] - written.append_ms[0])
    sizes = {
        "log": _bytes(written.directory, ".log"),
        TIME_INDEX: _bytes(written.directory, ".timeindex"),
        OFFSET_INDEX: _bytes(written.directory, ".index"),
        **{subject: _bytes(builder.folder, builder.SUFFIX) for subject, builder in builders.items()},
    }
    yield Measurement(case.part, case.name, "log", "span", float(span_ms), "ms")
    for subject, size in sizes.items():
        yield Measurement(case.part, case.name, subject, "bytes", float(size), "bytes")
        yield Measurement(case.part, case.name, subject, "bytes a day", size * DAY_MS / span_ms, "bytes")
    for what, length in lengths.items():
        yield Measurement(case.part, case.name, "files", what, float(length), "bytes")
    segments = len(list(written.directory.glob("*.log")))
    for suffix in (".log", ".index", ".timeindex"):
        count = sum(1 for name in open_files if name.endswith(suffix))
        yield Measurement(case.part, case.name, "files", f"open {suffix}", float(count), "descriptors")
        files = len(list(written.directory.glob(f"*{suffix}")))
        yield Measurement(case.part, case.name, "files", f"{suffix} for each segment", files / segments, "files")


def open_in(directory: Path) -> list[str]:
    """Return the names of the files in a folder that this process has open (on Linux; an empty result elsewhere)."""
    descriptors = Path("/proc/self/fd")
    found: list[str] = []
    if descriptors.exists():
        for descriptor in descriptors.iterdir():
            try:
                target = descriptor.readlink()
            except OSError:  # The descriptor that lists the folder is already closed.
                continue
            if target.parent == directory.resolve():
                found.append(target.name)
    return found


def _bytes(folder: Path, suffix: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*{suffix}"))
