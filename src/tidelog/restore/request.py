"""The request for a restore.

`until` is a time. A partition can end there in two ways:

| order | restored records |
|---|---|
| `append` | everything before the first record at or after `until`: the cut is an offset |
| `time` | every record with an earlier timestamp, including late ones, which were appended later |

A plan counts the late records, which `time` restores and `append` does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

from tidelog.copying.spreading import Partitioner, Spread
from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import folder_path
from tidelog.model import is_hidden, is_topic_name
from tidelog.sources.opening import kind_of
from tidelog.times import format_time

Order = Literal["append", "time"]
APPEND: Final = "append"
BY_TIME: Final = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """A request for a restore. Times are epoch milliseconds. Without `until_ms` the restore ends at the point's cut."""

    backup: str
    target: str
    """The target: a folder, or a cluster's `host:port`."""
    until_ms: int | None = None
    from_ms: int | None = None
    order: Order = APPEND
    point: int | None = None
    """The sequence of the point to restore from; None to choose it by `until_ms`."""
    topics: tuple[str, ...] = ()
    """Topic names, or patterns with `*` and `?`; empty for all topics that are not internal."""
    excepted: tuple[str, ...] = ()
    """Topics of these that are not restored: names or patterns."""
    renames: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that replace those in the backup, for all restored topics."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The new number of partitions of topics, by their names in the backup. Clusters only."""
    partitioner: Partitioner = "murmur2"
    groups: tuple[str, ...] | None = None
    """The groups whose positions are restored; None for all."""
    into_existing: bool = False
    """Whether to append to topics of the target that have records; if False, such topics are an error. Clusters only."""

    def __post_init__(self) -> None:
        for old, new in self.renames.items():
            if not is_topic_name(new):
                raise InvalidArgumentError(f"the new name of topic {old!r} is not a valid topic name", found=repr(new))
        for topic, count in self.partitions.items():
            if count < 1:
                raise InvalidArgumentError(f"topic {topic!r} needs at least one partition", found=count, expected="at least 1")
        if self.partitions and not kind_of(self.target).is_cluster:
            text = "the number of partitions can be changed only in a cluster, because a folder keeps offsets"
            raise InvalidArgumentError(text, found=self.target, expected="a cluster, host:port")
        if self.into_existing and not kind_of(self.target).is_cluster:
            text = "records can be appended to existing topics only in a cluster, because a folder keeps offsets"
            raise InvalidArgumentError(text, found=self.target, expected="a cluster, host:port")
        if len(set(self.renames.values())) < len(self.renames):
            raise InvalidArgumentError("two topics would be renamed to the same name", found=dict(self.renames))
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            raise InvalidArgumentError(
                "the time range to restore is empty",
                found=f"from {format_time(self.from_ms)}",
                expected=f"before {format_time(self.until_ms)}",
            )

    @property
    def folder(self) -> Path:
        """The target's folder. Raises InvalidArgumentError if the address is not a local folder."""
        return folder_path(self.target, "a folder, or host:port")

    def wants(self, topic: str) -> bool:
        """Whether the request selects the topic with this name in the backup."""
        return self.names(topic) and not any(fnmatchcase(topic, one) for one in self.excepted)

    def names(self, topic: str) -> bool:
        """Whether `topics` selects the topic, which `excepted` may leave out."""
        if not self.topics:
            return not is_hidden(topic)
        return any(fnmatchcase(topic, one) for one in self.topics)

    def spread_of(self, topic: str) -> Spread | None:
        """Return how a topic's records are spread over a new number of partitions, or None if the number stays the same."""
        count = self.partitions.get(topic)
        return None if count is None else Spread(count, self.partitioner)

    def name_of(self, topic: str) -> str:
        """Return the name in the target of a topic of the backup."""
        return self.renames.get(topic, topic)


def check_same(begun: Mapping[str, object], wanted: Mapping[str, object], path: Path, what: str, advice: str) -> None:
    """Raise InvalidArgumentError, naming the difference, if a folder belongs to a different restore. `what` names the folder."""
    names = [name for name in {**begun, **wanted} if begun.get(name) != wanted.get(name)]
    if names:
        raise InvalidArgumentError(
            f"{what} belongs to a different restore: continue that restore with the same options, or {advice}",
            path=path,
            found=", ".join(f"{name} {begun.get(name)}" for name in names),
            expected=", ".join(f"{name} {wanted.get(name)}" for name in names),
        )
