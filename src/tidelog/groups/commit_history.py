"""The groups' commits that are still in ``__consumer_offsets``. `lag` computes rates from them.

The log is compacted, so it contains past commits only if the cleaner has not removed them yet. The cleaner never touches the
active segment, by default 100 MiB of commits.
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
    """Collects the groups' commits at or after `since_ms` (epoch ms), oldest first."""

    def __init__(self, since_ms: int = 0) -> None:
        self._groups: dict[str, Commits] = {}
        self._since_ms = since_ms

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record. Records other than offset commits are skipped. Raises ProtocolError for a malformed record."""
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
