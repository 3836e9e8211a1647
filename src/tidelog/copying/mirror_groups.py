"""Sets the offsets of the source's consumer groups in the target, by the offset maps.

| a group's committed offset in the source | its offset in the target |
|---|---|
| an offset that was mirrored | the offset of the same record in the target (`OffsetMap.target_of`) |
| an offset that is not yet mirrored | the end of the mirrored records: no record is skipped, some may be read twice later |
| an offset in a topic that is not mirrored | none |

Mirrors also store their positions in groups. If all groups are requested, groups with a mirror's default name are left out.

An offset in the target is never moved back. The offsets of a group that has members in the target are not changed, because
the group has already moved there.
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
"""Prefix of the groups in which mirrors store their positions, unless their jobs have a name."""


def offsets_of_groups(source: Groups, groups: Iterable[str] | None) -> Mapping[str, Mapping[TopicPartition, int]]:
    """Return the committed offsets of `groups`, or of all the source's groups if `groups` is None. Raises the errors of
    `Source`.
    """
    return source.committed(_consumers(source.list()) if groups is None else dict.fromkeys(groups))


def sync_group(target: Cluster, group: str, offsets: Mapping[TopicPartition, int], maps: OffsetMap) -> None:
    """Set a group's offsets in the target to the copies of its positions in the source, if that moves them forward.

    Nothing is set while the group has members in the target. Raises CorruptDataError for a damaged map, BrokerError,
    BrokerUnreachableError.
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
            if error.error_code != ErrorCode.UNKNOWN_MEMBER_ID:  # This code means that the group now has members.
                raise


def _consumers(listed: Iterable[GroupListing]) -> list[str]:
    return [one.group for one in listed if not one.group.startswith(JOB_PREFIX)]
