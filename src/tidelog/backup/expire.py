"""Removes old points, and the objects that only they need.

| step | if it ends here |
|---|---|
| ``expired/<first kept sequence>`` is written | the older points no longer count as missing |
| the older points are removed, then their seals | the remaining points are complete |
| unneeded objects older than the grace period are removed | the next call removes them |

The grace period protects a backup that is running: its new objects belong to no point yet. The newest point is always kept.
Nothing is removed while a manifest of a kept point is missing or damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidelog.backup.backup import Backup
from tidelog.backup.layout import (
    DATA,
    EXPIRED,
    EXPIRED_CONTENT,
    MANIFESTS,
    SEALS,
    PointName,
    expired_key,
    manifest_key,
    parse_expired,
    parse_seal,
)
from tidelog.errors import NotFoundError

GRACE_MS = 24 * 3_600_000


@dataclass(frozen=True)
class Expired:
    """What was removed, or would be removed if this were not a dry run."""

    points: tuple[PointName, ...]
    objects: int
    size_bytes: int
    """The size of the removed objects."""
    kept_points: int
    waiting_objects: int
    """The number of objects that no point needs, but that are not older than the grace period. A later call removes them."""
    waiting_bytes: int


def expire(backup: Backup, before_ms: int, now_ms: int, *, grace_ms: int = GRACE_MS, dry_run: bool = False) -> Expired:
    """Remove the points whose cut was taken before a time, and the objects that no remaining point needs. Raises NotFoundError if
    the backup has no point, CorruptDataError for damage in a point that is kept, StorageError.
    """
    points = backup.points()
    if not points:
        raise NotFoundError("the backup has no points", path=str(backup.target))
    kept = [one for one in points if one.time_ms >= before_ms] or points[-1:]
    removed = [one for one in points if one < kept[0]]
    kept = [one for one in points if one >= kept[0]]
    needed = _needed(backup, kept)
    target = backup.target
    if not dry_run and removed:
        target.put(expired_key(kept[0].sequence), EXPIRED_CONTENT)
    if not dry_run:
        target.delete(one.key for one in removed)
        first = max(kept[0].sequence if removed else 1, backup.expired_before())
        seals = [key for key, _ in target.list(SEALS) if (seal := parse_seal(key)) is not None and seal.sequence < first]
        marks = [key for key, _ in target.list(EXPIRED) if (mark := parse_expired(key)) is not None and mark < first]
        target.delete([*seals, *marks])
    orphans: list[tuple[str, int]] = []
    waiting: list[int] = []
    for folder in (DATA, MANIFESTS):
        for key, facts in target.list(folder, unfinished=True):
            if key in needed:
                continue
            if facts.modified_ns // 1_000_000 < now_ms - grace_ms:
                orphans.append((key, facts.size_bytes))
            else:
                waiting.append(facts.size_bytes)
    if not dry_run:
        target.delete(key for key, _ in orphans)
    size_bytes = sum(size for _, size in orphans)
    return Expired(tuple(removed), len(orphans), size_bytes, len(kept), len(waiting), sum(waiting))


def _needed(backup: Backup, points: list[PointName]) -> set[str]:
    """Return the names of all objects that these points need."""
    needed: set[str] = set()

    def is_new(sha256: str) -> bool:
        key = manifest_key(sha256)
        if key in needed:
            return False
        needed.add(key)
        return True

    for name in points:
        point = backup.read_point(name)
        if point.rights is not None:
            needed.add(manifest_key(point.rights))
        if not is_new(point.catalog):
            continue
        for entry in backup.catalog(point).values():
            if not is_new(entry.sha256):
                continue
            for sha256 in backup.topic(entry).partitions.values():
                if is_new(sha256):
                    partition = backup.read_partition(sha256)
                    needed |= {manifest_key(page.sha256) for page in partition.pages}
                    needed |= _files(backup, partition)
    return needed


def _files(backup: Backup, partition: Any) -> set[str]:
    files = {
        backup.key(partition, piece, suffix)
        for segment in backup.segments(partition)
        for piece in segment.pieces
        for suffix in piece.files
    }
    return files | {backup.key(partition, one) for one in backup.snapshots(partition)}
