"""The interface of consumer groups in a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.groups.description import GroupListing
from tidelog.model import Isolation, TopicPartition
from tidelog.times import format_time

if TYPE_CHECKING:
    from tidelog.client.consumer_groups.group_lag import GroupLag
    from tidelog.reader.missing.missing_offsets import MissingOffsets


class GroupBundle(NamedTuple):
    """Groups that are measured together. `groups` is None for all groups in a partition of ``__consumer_offsets``."""

    offsets_partition: int
    groups: tuple[str, ...] | None


class Groups(ABC):
    """The groups of a source. They use the source's connections and files, and are closed with the source."""

    @property
    def unknown_configs(self) -> Collection[str]:
        """Topics whose configuration was needed but unknown, so Kafka's defaults were used."""
        return ()

    def at(self, time_ms: int) -> Groups:
        """Return the groups as they were at a time. Raises InvalidArgumentError if only the present is known."""
        text = "brokers report only the current offsets of groups: to see earlier offsets, read a data folder or a backup"
        raise InvalidArgumentError(text, found=format_time(time_ms))

    @abstractmethod
    def list(self) -> Sequence[GroupListing]:
        """Return all groups, by name."""

    @abstractmethod
    def describe(self, group: str, clock: Clock, isolation: Isolation, window_ms: int) -> GroupLag:
        """Return a group's lag, with rates over the last `window_ms`."""

    @abstractmethod
    def committed(self, groups: Iterable[str]) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Return the committed offsets by group and partition. Groups without committed offsets are left out."""

    @abstractmethod
    def bundles(self, wanted: tuple[str, ...] | None) -> Sequence[GroupBundle]:
        """Return all groups, or the requested groups, in bundles that are measured together."""

    @abstractmethod
    def lags(self, bundle: GroupBundle, clock: Clock, isolation: Isolation, window_ms: int) -> Iterator[GroupLag]:
        """Yield the lag of each group of a bundle, leaving out groups that do not exist."""

    def missing_commits(self, groups: Iterable[str] | None = None) -> Sequence[MissingOffsets]:
        """Return the missing records of ``__consumer_offsets`` that may make the results wrong for the given groups (None: all
        groups).
        """
        return ()
