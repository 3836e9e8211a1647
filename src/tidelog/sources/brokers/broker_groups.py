"""A cluster's consumer groups, as their coordinators report them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.group_lag import GroupLag, group_lag, read_commits
from tidelog.client.consumer_groups.groups import committed_offsets, list_groups
from tidelog.clock import Clock
from tidelog.errors import BrokerError, NotFoundError
from tidelog.groups.description import DEAD, GroupListing
from tidelog.groups.offsets_topic import partition_of
from tidelog.model import OFFSETS_TOPIC, Isolation, TopicPartition
from tidelog.sources.groups import GroupBundle, Groups

BUNDLE_GROUPS = 50
"""The maximum number of groups in a bundle. Each group needs about ten requests, sent one after the other."""


class BrokerGroups(Groups):
    """The groups of a cluster. Raises BrokerUnreachableError, BrokerError, ProtocolError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> Sequence[GroupListing]:
        return list_groups(self._cluster)

    def describe(self, group: str, clock: Clock, isolation: Isolation, window_ms: int) -> GroupLag:
        return group_lag(self._cluster, group, clock, isolation=isolation, window_ms=window_ms)

    def committed(self, groups: Iterable[str]) -> Mapping[str, Mapping[TopicPartition, int]]:
        found = {name: committed_offsets(self._cluster, name) for name in groups}
        return {name: {key: one.offset for key, one in offsets.items()} for name, offsets in found.items() if offsets}

    def bundles(self, wanted: tuple[str, ...] | None) -> Sequence[GroupBundle]:
        """Return groups in bundles. The commits of a bundle's groups are in the same partition of ``__consumer_offsets``, which
        is therefore read once per bundle.
        """
        names = wanted if wanted is not None else [one.group for one in list_groups(self._cluster)]
        try:
            count = len(self._cluster.topic_now(OFFSETS_TOPIC).partitions) if names else 1
        except (NotFoundError, BrokerError):
            count = 1  # If the client is not authorized to read the partition, only the rates are unknown.
        by_partition: dict[int, list[str]] = defaultdict(list)
        for name in names:
            by_partition[partition_of(name, count)].append(name)
        return [
            GroupBundle(partition, tuple(together[at : at + BUNDLE_GROUPS]))
            for partition, together in sorted(by_partition.items())
            for at in range(0, len(together), BUNDLE_GROUPS)
        ]

    def lags(self, bundle: GroupBundle, clock: Clock, isolation: Isolation, window_ms: int) -> Iterator[GroupLag]:
        assert bundle.groups is not None
        history = read_commits(self._cluster, bundle.groups, clock.now_ms() - window_ms)
        for group in bundle.groups:
            found = group_lag(self._cluster, group, clock, isolation=isolation, window_ms=window_ms, history=history)
            if found.description.state != DEAD or found.partitions:
                yield found
