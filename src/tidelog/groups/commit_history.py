"""The commits that ``__consumer_offsets`` still has of groups: what their rates are computed from (`lag`).

The log is compacted, so what it says of the past is what compaction has not come to yet: Kafka leaves the segment alone that it
writes to, 100 MiB of commits by default.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.groups.group_table import group_of
from tidelog.groups.lag import Commit
from tidelog.model import TopicPartition
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import decode_versioned, version_of

_OFFSET_KEYS = (0, 1)

Commits = dict[TopicPartition, list[Commit]]


class CommitHistory:
    """Commits of groups as they came, oldest first; those from before `since_ms` (epoch ms) are not kept."""

    def __init__(self, since_ms: int = 0) -> None:
        self._groups: dict[str, Commits] = {}
        self._since_ms = since_ms

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; those that are no offset's are skipped. Raises ProtocolError for one that is malformed."""
        if key is None or version_of(key) not in _OFFSET_KEYS:
            return
        place = decode_versioned(OffsetCommitKey, key)
        at = TopicPartition(place.topic, place.partition)
        commits = self._groups.setdefault(place.group, {})
        if value is None:
            commits.pop(at, None)
            return
        found = decode_versioned(OffsetCommitValue, value)
        if found.commit_timestamp >= self._since_ms:
            commits.setdefault(at, []).append(Commit(found.offset, found.commit_timestamp))

    def of(self, group: str) -> Commits:
        """Return a group's commits."""
        return self._groups.get(group, {})


def histories_of(groups: Iterable[str], records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, Commits]:
    """Return each group's commits in these records (key, value), oldest first. Raises ProtocolError."""
    history = CommitHistory()
    wanted = frozenset(groups)
    for key, value in records:
        if group_of(key) in wanted:
            history.read(key, value)
    return {group: history.of(group) for group in wanted}
