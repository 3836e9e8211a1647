"""The source's consumer groups on the target: their offsets, by the offset maps.

| what a group has committed in the source | its offset in the target |
|---|---|
| an offset that was mirrored | the same record's (`OffsetMap.target_of`) |
| one after what was mirrored so far | the end of what was mirrored: nothing is skipped, and some may be read twice later |
| in a topic that is not mirrored | none |

The positions of mirrors lie in groups, too: where all groups are asked for, those with a mirror's own name are left out.

An offset in the target never goes back here, and a group with members in the target is left alone: it has moved over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets, describe_group
from tidelog.copying.offset_map import OffsetMap
from tidelog.errors import BrokerError, NotFoundError
from tidelog.groups.description import DEAD, EMPTY, GroupListing
from tidelog.model import TopicPartition
from tidelog.sources.groups import Groups
from tidelog.wire.error_codes import ErrorCode

JOB_PREFIX = "mirror-"
"""Prefix of the groups in which mirrors keep their positions, unless their jobs were given a name."""


def offsets_of_groups(source: Groups, groups: Iterable[str] | None) -> Mapping[str, Mapping[TopicPartition, int]]:
    """Return what groups have committed, all of the source's groups for None. Raises what asking and reading raise."""
    return source.committed(_consumers(source.list()) if groups is None else dict.fromkeys(groups))


def sync_group(target: Cluster, group: str, offsets: Mapping[TopicPartition, int], maps: OffsetMap) -> None:
    """Set a group's offsets in the target to where the source's are, as far as they are ahead of those that it has there.

    Nothing is set while it has members there. Raises CorruptDataError for a damaged map, BrokerError, BrokerUnreachableError.
    """
    if describe_group(target, group).state not in (EMPTY, DEAD):
        return
    there = {key: one.offset for key, one in committed_offsets(target, group).items()}
    new: dict[TopicPartition, int] = {}
    for source, offset in offsets.items():
        try:
            found = maps.partition(source)
        except NotFoundError:
            continue
        key = TopicPartition(found.target_topic, source.partition)
        position = found.target_of(offset).offset
        if position > there.get(key, -1):
            new[key] = position
    if new:
        try:
            commit_offsets(target, group, new)
        except BrokerError as error:
            if error.error_code != ErrorCode.UNKNOWN_MEMBER_ID:  # Else it has got members since.
                raise


def _consumers(listed: Iterable[GroupListing]) -> list[str]:
    return [one.group for one in listed if not one.group.startswith(JOB_PREFIX)]
