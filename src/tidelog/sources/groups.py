"""Consumer groups where their offsets are kept: what every kind of source that has some can say of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.clock import Clock
from tidelog.groups.description import GroupListing
from tidelog.model import Isolation, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer_groups.group_lag import GroupLag
    from tidelog.reader.missing.missing_offsets import MissingOffsets


class GroupBundle(NamedTuple):
    """Groups that are asked for together: all of a partition of ``__consumer_offsets`` for None."""

    offsets_partition: int
    groups: tuple[str, ...] | None


class Groups(ABC):
    """The groups of a source; the source's connections and files are used, and closed with it."""

    @property
    def unknown_configs(self) -> Collection[str]:
        """Topics whose configuration was needed and is unknown: Kafka's defaults were taken."""
        return ()

    @abstractmethod
    def list(self) -> Sequence[GroupListing]:
        """Return all groups, by name."""

    @abstractmethod
    def describe(self, group: str, clock: Clock, isolation: Isolation, window_ms: int) -> GroupLag:
        """Return how far behind a group is; rates are those of the last `window_ms`."""

    @abstractmethod
    def committed(self, groups: Iterable[str]) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Return the offsets that groups have committed; groups without any are left out."""

    @abstractmethod
    def bundles(self, wanted: tuple[str, ...] | None) -> Sequence[GroupBundle]:
        """Return all groups, or those wanted, in parts that are measured together."""

    @abstractmethod
    def lags(self, bundle: GroupBundle, clock: Clock, isolation: Isolation, window_ms: int) -> Iterator[GroupLag]:
        """Yield how far behind a bundle's groups are; of one that does not exist, nothing."""

    def missing_commits(self, groups: Iterable[str] | None = None) -> Sequence[MissingOffsets]:
        """Return what is missing of ``__consumer_offsets``, for some groups or for all: what is read of these may be wrong."""
        return ()
