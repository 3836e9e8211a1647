"""One partition's rebuild: its segments as tasks, their outcomes taken in order, its aborted transactions written.

Whoever runs the tasks, threads (`folder_rebuild`) or Spark's workers (`spark.jobs`), makes one `PartitionRebuild`, hands `tasks`
to `rebuild_segment` in any order, and gives the outcomes to `take` in the order of the tasks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidelog.check.indexes.index_files import RebuiltFile, make_folder, put
from tidelog.check.indexes.index_finding import Finding
from tidelog.check.indexes.index_rebuild import aborted_by, state_at
from tidelog.check.indexes.partition_interval import PartitionToVerify, guess_interval, preferred_intervals
from tidelog.check.indexes.segment_rebuild import RebuiltSegment, SegmentToRebuild
from tidelog.errors import InvalidArgumentError
from tidelog.formats import names
from tidelog.reader.producer_state import ProducerState


@dataclass
class RebuiltPartition:
    """What was done for a partition."""

    topic: str
    partition: int
    directory: Path
    """Where the files are."""
    interval_bytes: int
    segments: int = 0
    size_bytes: int = 0
    files: list[RebuiltFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """What is wrong with the logs."""

    @property
    def changed(self) -> list[RebuiltFile]:
        """Return the files that were there, were not right, and are now."""
        return [file for file in self.files if not (file.is_right or file.is_left) and file.old_bytes is not None]

    @property
    def new(self) -> list[RebuiltFile]:
        """Return the files that were not there."""
        return [file for file in self.files if not file.is_right and file.old_bytes is None]

    @property
    def left(self) -> list[RebuiltFile]:
        """Return the files that are not right and stay, because only missing ones were asked for."""
        return [file for file in self.files if file.is_left]


def checked_out_dir(out_dir: str | os.PathLike[str] | None, data_dir: Path) -> Path | None:
    """Return a folder for files, which need not be there. Raises InvalidArgumentError for one inside the data folder."""
    out = None if out_dir is None else Path(out_dir)
    if out is not None and out.resolve().is_relative_to(data_dir.resolve()):
        raise InvalidArgumentError("--out lies inside the data folder; without --out the indexes are rebuilt in place", path=out)
    return out


class RebuildRules(NamedTuple):
    """What is built, and where."""

    out_dir: Path | None = None
    """Where the files go; None stands for their own places."""
    interval_bytes: int | None = None
    """None: as the indexes that are there were written."""
    time_maps: bool = True
    missing_only: bool = False
    """Files that are there stay as they are."""


class PartitionRebuild:
    """One partition on its way."""

    def __init__(self, partition: PartitionToVerify, rules: RebuildRules) -> None:
        """Open the partition. Raises what opening raises, and StorageError."""
        log = partition.open()
        interval = rules.interval_bytes
        if interval is None:
            interval = guess_interval(log.segments, preferred_intervals(partition))
        out_dir = None if rules.out_dir is None else rules.out_dir / log.directory.name
        self.result = RebuiltPartition(log.topic, log.partition, out_dir or log.directory, interval)
        self.tasks = [
            SegmentToRebuild(segment, out_dir, interval, rules.time_maps, rules.missing_only) for segment in log.segments
        ]
        self._taken = 0
        self._state: ProducerState | None = None
        if out_dir is not None:
            make_folder(out_dir)

    def take(self, rebuilt: RebuiltSegment) -> None:
        """Take the next segment's outcome, and write its aborted transactions. Raises StorageError."""
        task = self.tasks[self._taken]
        self._taken += 1
        if self._state is None:
            self._state = state_at(task.segment.log_path)
        aborted = aborted_by(rebuilt.transactions, self._state)
        self.result.segments += 1
        self.result.size_bytes += rebuilt.size_bytes
        self.result.findings += rebuilt.findings
        transactions = b"".join(txn.to_bytes() for txn in aborted) or None
        path = task.target(names.TXN_INDEX_SUFFIX)
        self.result.files += [*rebuilt.files, *put(path, transactions, missing_only=task.missing_only)]
