"""Compares two points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.backup.backup import Backup
from tidelog.backup.manifest import PartitionEnds, Point, TopicEntry

RECREATED = "topic deleted and created again"
"""The `what` of a topic that has a different id: `before` and `after` are the ids."""


class Difference(NamedTuple):
    """A difference between two points, in one partition or elsewhere. `appended` and `removed` are numbers of offsets."""

    topic: str | None
    partition: int | None
    what: str
    appended: int = 0
    removed: int = 0
    before: str | None = None
    after: str | None = None


def compare(backup: Backup, old: Point, new: Point) -> Iterator[Difference]:
    """Yield the changes from the point `old` to the point `new`. Raises NotFoundError, CorruptDataError."""
    if old.rights != new.rights:
        before, after = backup.rights(old) or {}, backup.rights(new) or {}
        for what in sorted({*before, *after}):
            if before.get(what) != after.get(what):
                yield Difference(None, None, f"{what} changed")
    if old.catalog == new.catalog:
        return
    olds, news = backup.catalog(old), backup.catalog(new)
    for name in sorted({*olds, *news}):
        before_topic, after_topic = olds.get(name), news.get(name)
        if after_topic is None:
            yield Difference(name, None, "topic deleted")
        elif before_topic is None:
            yield Difference(name, None, "topic created")
            yield from _partitions({}, after_topic)
        elif before_topic.topic_id != after_topic.topic_id:
            ids = str(before_topic.topic_id), str(after_topic.topic_id)
            yield Difference(name, None, RECREATED, before=ids[0], after=ids[1])
            yield from _partitions({}, after_topic)
        elif before_topic != after_topic:
            yield from _settings(backup, before_topic, after_topic)
            yield from _partitions({one.partition: one for one in before_topic.partitions}, after_topic)


def _settings(backup: Backup, old: TopicEntry, new: TopicEntry) -> Iterator[Difference]:
    before, after = backup.topic(old).settings or {}, backup.topic(new).settings or {}
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Difference(new.name, None, f"setting {name}", before=before.get(name), after=after.get(name))


def _partitions(olds: dict[int, PartitionEnds], new: TopicEntry) -> Iterator[Difference]:
    for after in new.partitions:
        before = olds.get(after.partition)
        if before is None:
            count = after.end_offset - after.log_start_offset
            yield Difference(new.name, after.partition, "partition created", appended=count)
        elif after.end_offset < before.end_offset:
            ends = str(before.end_offset), str(after.end_offset)
            yield Difference(
                new.name,
                after.partition,
                "truncated",
                removed=before.end_offset - after.end_offset,
                before=ends[0],
                after=ends[1],
            )
        elif (after.log_start_offset, after.end_offset) != (before.log_start_offset, before.end_offset):
            appended, removed = after.end_offset - before.end_offset, after.log_start_offset - before.log_start_offset
            yield Difference(new.name, after.partition, "records", appended=appended, removed=removed)
