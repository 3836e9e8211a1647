"""Finds restored topics whose old records a broker would delete at once, because `retention.ms` is unchanged."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.backup.backup import open_backup
from tidelog.config import LogConfig
from tidelog.restore.cuts import RestorePlan, TopicCut
from tidelog.times import format_time


def soon_removed(plan: RestorePlan, now_ms: int) -> Iterator[str]:
    """Yield a note for each topic from which a broker would delete segments at once. Reads the partitions' manifests."""
    for topic in plan.topics:
        config = LogConfig.from_properties(dict(topic.settings))
        if not config.is_deleted or config.retention_ms < 0:
            continue
        with open_backup(plan.request.backup).naming_expiry(topic.sequence):
            oldest = _oldest(plan, topic)
        if oldest is not None and oldest < now_ms - config.retention_ms:
            whose = "its" if "retention.ms" in topic.settings else "Kafka's default of"
            yield (
                f"{topic.name}: has records of {format_time(oldest)}; with {whose} retention.ms={config.retention_ms} a broker "
                "may remove them within minutes: to keep them, use --set retention.ms=-1"
            )


def _oldest(plan: RestorePlan, topic: TopicCut) -> int | None:
    """Return the smallest time of the partitions' first segments, where a segment's time is its largest timestamp; None without
    segments.
    """
    backup = open_backup(plan.request.backup)
    found = []
    for cut in topic.partitions:
        if not cut.size:
            continue
        for segment in backup.segments(backup.partition(topic.manifest, cut.partition)):
            pieces = [piece for piece in segment.pieces if piece.end_offset > cut.start_offset]
            if pieces:
                found.append(max(piece.max_time for piece in pieces))
                break
    return min(found, default=None)
