"""Metrics of a continuous backup, in a file for the textfile collector of Prometheus's node exporter.

| metric | value |
|---|---|
| `tidelog_backup_last_success_timestamp_seconds` | the time of the last point's cut |
| `tidelog_backup_lag_seconds` | the age of the last point's cut when the file was written |
| `tidelog_backup_point` | the last point's sequence number |
| `tidelog_backup_bytes`, `…_written_bytes_total` | the last point's size; bytes written by this process |
| `tidelog_backup_points_total`, `…_failures_total` | points taken, and failed attempts, by this process |
| `tidelog_backup_incomplete`, `…_gaps_total` | topics and partitions missing from the last point; gaps found by this process |
"""

from __future__ import annotations

import logging
from pathlib import Path

from tidelog.backup.manifest import Point
from tidelog.errors import StorageError
from tidelog.formats.checkpoints import replace_file

logger = logging.getLogger("tidelog.backup")

_HELP = {
    "last_success_timestamp_seconds": ("gauge", "Time at which the last point's cut was taken."),
    "lag_seconds": ("gauge", "Age of the last point's cut when this file was written."),
    "point": ("gauge", "Sequence number of the last point."),
    "bytes": ("gauge", "Size of the segments that the last point needs."),
    "incomplete": ("gauge", "Number of topics and partitions that the last point could not read."),
    "points_total": ("counter", "Points taken by this process."),
    "failures_total": ("counter", "Failed attempts to take a point."),
    "written_bytes_total": ("counter", "Bytes written by this process."),
    "gaps_total": ("counter", "Ranges of records that were deleted before they could be backed up."),
}


class Figures:
    """Writes the metrics to `path`, if it is given, after each point and each failure."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._values: dict[str, float] = {name: 0 for name, (kind, _) in _HELP.items() if kind == "counter"}

    def known(self, point: Point) -> None:
        """Set the metrics of the last point. When a backup continues, this is a point that an earlier process took, so its age
        is reported before this process takes a point.
        """
        self._values |= {
            "last_success_timestamp_seconds": point.taken_ms / 1000,
            "point": point.sequence,
            "bytes": point.size_bytes,
            "incomplete": len(point.incomplete),
        }

    def taken(self, point: Point, now_ms: int) -> Point:
        """Count a point, write the metrics, and return the point."""
        self.known(point)
        self._values["lag_seconds"] = max(0, now_ms - point.taken_ms) / 1000
        for name, count in (("points_total", 1), ("written_bytes_total", point.written_bytes), ("gaps_total", point.gaps)):
            self._values[name] += count
        self._write()
        return point

    def failed(self, now_ms: int) -> None:
        """Count a failure, and write the metrics."""
        self._values["failures_total"] += 1
        if "last_success_timestamp_seconds" in self._values:
            self._values["lag_seconds"] = max(0, now_ms / 1000 - self._values["last_success_timestamp_seconds"])
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        lines = []
        for name, (kind, text) in _HELP.items():
            if name in self._values:
                full = f"tidelog_backup_{name}"
                lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {self._values[name]:.15g}"]
        try:
            replace_file(self._path, "\n".join([*lines, ""]).encode())
        except StorageError as error:  # A failure to write metrics must not stop the backup.
            logger.warning("the metrics file for Prometheus could not be updated: %s", error)
