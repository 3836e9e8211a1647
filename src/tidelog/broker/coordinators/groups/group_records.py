"""Converts groups to and from records of ``__consumer_offsets``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from tidelog.broker.coordinators.consumer_groups.consumer_group import Change, ConsumerGroup
from tidelog.broker.coordinators.groups.group import Group, GroupState, Member
from tidelog.groups.group_table import GroupTable
from tidelog.groups.offset_records import GROUP_VALUE_VERSION, group_key
from tidelog.records.state_batches import Entry, StateBatch
from tidelog.wire.coordinator.group_metadata import GroupMetadataValue, MemberMetadata
from tidelog.wire.coordinator.versioned import encode_versioned

logger = logging.getLogger("tidelog.groups")
_noted: set[bool] = set()
"""Not empty once the warning about groups of newer protocols is logged. It is logged only once, because every partition may
have such groups.
"""

_FIRST_WITH_INSTANCES = 3
"""The first version of the record with instance ids. In older versions static members become dynamic when the coordinator
restarts, as in Kafka.
"""


def group_entry(group: Group, version: int = GROUP_VALUE_VERSION) -> Entry:
    """Return the record of a group's metadata, in value version `version`: its generation, and its members with their
    assignments.
    """
    return group_key(group.group_id), encode_versioned(group_value(group, version), version)


def group_value(group: Group, version: int) -> GroupMetadataValue:
    """Return a group's metadata as of now, to be encoded in value version `version`."""
    protocol = group.protocol_name
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id if version >= _FIRST_WITH_INSTANCES else None,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols.get(protocol or "", b""),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def least_bytes(group: Group) -> int:
    """Return a lower bound for the size of `group_entry` in bytes, without building it, because members may have sent 100 MB."""
    protocol = group.protocol_name or ""
    return sum(len(member.protocols.get(protocol, b"")) + len(member.assignment) for member in group.members.values())


def read_groups(batches: Iterable[StateBatch], now_ms: int, *, has_consumers: bool = False) -> dict[str, Group]:
    """Return the groups of a partition of the log, by id, with their offsets and members. Any thread may call this.

    Consumer groups (KIP-848) are returned only with `has_consumers`.

    A group that has offsets but no group metadata record is loaded as empty. Raises ProtocolError if a key or value that is
    needed is malformed or too new.
    """
    table = GroupTable()
    table.read(batches)
    consumers = table.consumer_records() if has_consumers else {}
    if table.has_modern and not has_consumers and not _noted:
        _noted.add(True)
        logger.warning(
            "the log has groups of newer protocols (consumer, share, streams): this broker keeps them but does not coordinate "
            "them; for consumer groups, set group.coordinator.rebalance.protocols=classic,consumer"
        )
    groups: dict[str, Group] = {}
    for group_id, stored in table.groups().items():
        metadata = None if group_id in consumers else stored.metadata
        group = Group(group_id, now_ms) if metadata is None else _group(group_id, metadata, now_ms)
        group.offsets = stored.offsets
        groups[group_id] = group
    for group_id, records in consumers.items():
        group = groups.setdefault(group_id, Group(group_id, now_ms))
        group.consumer = ConsumerGroup(group_id)
        group.consumer.apply(Change(key, value) for key, value in records)
    return groups


def _group(group_id: str, value: GroupMetadataValue, now_ms: int) -> Group:
    group = Group(group_id, now_ms, GroupState.STABLE if value.members else GroupState.EMPTY)
    group.state_timestamp_ms = value.current_state_timestamp
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for member in _members(value):
        group.members[member.member_id] = member
        if member.group_instance_id is not None:
            group.static_members[member.group_instance_id] = member.member_id
    if group.leader_id is None and group.members:
        group.leader_id = next(iter(group.members))
    return group


def _members(value: GroupMetadataValue) -> Iterator[Member]:
    for one in value.members:
        member = Member(
            one.member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            # Version 0 of the record has no rebalance timeout, so the session timeout applies.
            rebalance_timeout_ms=one.rebalance_timeout if one.rebalance_timeout >= 0 else one.session_timeout,
            session_timeout_ms=one.session_timeout,
            protocol_type=value.protocol_type,
            protocols={value.protocol or "": one.subscription},
        )
        member.assignment = one.assignment
        yield member
