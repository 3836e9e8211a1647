"""A Kafka data folder as a source. Its files are read directly, even while a broker serves them.

| end of the readable part | if |
|---|---|
| the log's end | `until` is `log_end`, or the folder has no checkpoint (a backup, a folder written by a tool) |
| the high-watermark checkpoint | `until` is `high_watermark`: records after it may be truncated when the leader changes |
| the last stable offset | isolation is read_committed, and the last stable offset is smaller than the above |

Kafka writes the checkpoint every five seconds and when it stops. The source shows the folder as first seen until `refresh`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tidelog.errors import NotFoundError
from tidelog.folder_list import Folders
from tidelog.model import READ_COMMITTED, READ_UNCOMMITTED, Isolation, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.time_search import FoundOffset, find_from, find_offset
from tidelog.sources.bounds import HIGH_WATERMARK, LOG_END, TimeRange
from tidelog.sources.files.cached_log_dir import open_cached
from tidelog.sources.source import Ends, Source

if TYPE_CHECKING:
    from tidelog.formats.paths.file_path import AnyPath
    from tidelog.sources.groups import Groups
    from tidelog.sources.scan_plan import ScanPlan, ScanRequest
    from tidelog.sources.scan_report import ScanReport
    from tidelog.sources.split import Split


class FolderSource(Source):
    """A data folder as a source. Raises DataDirNotFoundError if it is not a data folder."""

    log_dir: LogDir

    def __init__(self, folder: Folders | LogDir, *, skip_damaged: bool = False) -> None:
        if isinstance(folder, LogDir) and folder.skip_damaged >= skip_damaged:
            self.log_dir = folder
        else:
            self.log_dir = open_cached(folder.address if isinstance(folder, LogDir) else folder, skip_damaged=skip_damaged)
        super().__init__(self.log_dir.address)
        self._after: dict[TopicPartition, tuple[Log, list[MissingOffsets]]] = {}

    def topics(self, names: Collection[str] | None = None) -> dict[str, list[int]]:
        found = self.log_dir.topics()
        return found if names is None else {name: numbers for name, numbers in found.items() if name in names}

    def partitions(self, topic: str) -> list[int]:
        return self.log_dir.partitions(topic)

    def ends(
        self, keys: Collection[TopicPartition], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, Ends]:
        found: dict[TopicPartition, Ends] = {}
        for key in keys:
            try:
                log = self.log_dir.log(*key)
                found[key] = Ends(log.log_start_offset, _end(log, isolation, until), log.log_end_offset)
            except NotFoundError:
                continue  # Deleted since the folder was listed.
            log.close()  # A folder may have more partitions than the process may open files.
        return found

    def find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation = READ_UNCOMMITTED, until: str = LOG_END
    ) -> dict[TopicPartition, FoundOffset | None]:
        return self.planned(partial(self._find, targets, isolation, until))

    def _find(
        self, targets: Mapping[TopicPartition, int], isolation: Isolation, until: str
    ) -> dict[TopicPartition, FoundOffset | None]:
        found: dict[TopicPartition, FoundOffset | None] = {}
        for key, target in targets.items():
            log = self.log_dir.log(*key)
            first = find_offset(log, target, isolation)
            is_readable = first is not None and (until == LOG_END or first.offset < _end(log, isolation, until))
            found[key] = first if is_readable else None
            log.close()
        return found

    def reach(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], time_ms: int, isolation: Isolation
    ) -> tuple[dict[TopicPartition, int], bool]:
        found: dict[TopicPartition, int] = {}
        for key, (start, end) in ranges.items():
            first = find_from(self.log_dir.log(*key), time_ms, start)
            found[key] = end if first is None else min(first, end)
        return found, True

    def plan(self, request: ScanRequest) -> ScanPlan[Split]:
        from tidelog.sources.files.folder_plan import plan_folder

        return plan_folder(self.log_dir, request)

    def splits(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        time: TimeRange,
        isolation: Isolation,
        *,
        split_bytes: int,
        min_splits: int = 1,
        time_map_dir: AnyPath | None = None,
        report: ScanReport | None = None,
    ) -> list[Split]:
        return self.planned(partial(self._splits, ranges, time, isolation, split_bytes, min_splits, time_map_dir, report))

    def sizes(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {key: sum(segment.size_bytes for segment in self.log_dir.log(*key).segments) for key in keys}

    def bytes_each(self, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, float]:
        found: dict[TopicPartition, float] = {}
        for key in keys:
            log = self.log_dir.log(*key)
            size_bytes = sum(segment.size_bytes for segment in log.segments)
            found[key] = size_bytes / max(1, log.log_end_offset - log.segments[0].base_offset) if size_bytes else 0.0
        return found

    def refresh(self) -> None:
        self.log_dir.look()

    def renew(self) -> bool:
        return self.log_dir.look_again()

    def topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, uuid.UUID]:
        found: dict[str, uuid.UUID] = {}
        for key in keys:
            topic_id = self.log_dir.log(*key).topic_id
            if topic_id is not None:
                found[key.topic] = topic_id
        return found

    def groups(self) -> Groups:
        from tidelog.sources.files.folder_groups import FolderGroups

        return FolderGroups(self.log_dir)

    def cluster_id(self) -> str | None:
        from tidelog.storage.folder.meta_properties import known_cluster_id

        return known_cluster_id(self.log_dir.metadata_path)

    def missing_partitions(self) -> list[MissingOffsets]:
        return self.log_dir.missing_partitions()

    def missing_in(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> list[MissingOffsets]:
        found: list[MissingOffsets] = []
        for key, (start, end) in ranges.items():
            log = self.log_dir.log(*key)
            found += log.missing(start, end)
            log.close()
        return found

    def missing_after(self, keys: Iterable[TopicPartition]) -> list[MissingOffsets]:
        found: list[MissingOffsets] = []
        for key in keys:
            log = self.log_dir.log(*key)
            known = self._after.get(key)
            if known is None or known[0] is not log:
                known = self._after[key] = log, log.missing(log.log_end_offset)
                log.close()
            found += known[1]
        return found

    def _splits(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        time: TimeRange,
        isolation: Isolation,
        split_bytes: int,
        min_splits: int,
        time_map_dir: AnyPath | None,
        report: ScanReport | None,
    ) -> list[Split]:
        from tidelog.sources.scan_plan import ScanRequest

        by_topic: dict[str, dict[int, tuple[int | None, int | None]]] = {}
        for key in sorted(ranges):
            by_topic.setdefault(key.topic, {})[key.partition] = ranges[key]
        total = max(1, sum(end - start for start, end in ranges.values()))
        found: list[Split] = []
        for topic, offsets in by_topic.items():
            count = sum(end - start for key, (start, end) in ranges.items() if key.topic == topic)
            request = ScanRequest(
                topic=topic,
                time=time,
                isolation=isolation,
                offsets=offsets,
                time_map_dir=time_map_dir,
                split_bytes=split_bytes,
                min_splits=max(1, -(-min_splits * count // total)),
            )
            planned = self.plan(request)
            found += planned.splits
            if report is not None:
                report += planned.known
        return found

    def close(self) -> None:
        super().close()
        self.log_dir.close()


def _end(log: Log, isolation: Isolation, until: str) -> int:
    if until != HIGH_WATERMARK:
        return log.log_end_offset
    end = log.log_end_offset if log.high_watermark is None else log.high_watermark
    return min(end, log.last_stable_offset) if isolation == READ_COMMITTED else end
