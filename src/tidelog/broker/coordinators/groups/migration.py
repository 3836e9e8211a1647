"""Converts groups from one protocol to the other (KIP-848, online migration).

| | when | then |
|---|---|---|
| upgrade | a member of the new protocol joins a classic group | its members stay; their next heartbeat makes them rejoin |
| downgrade | the last member of the new protocol leaves, or a classic member takes its place | the others rebalance |

``group.consumer.migration.policy`` determines which of the two is allowed. This module computes the records;
`consumer_coordinator` writes them.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.broker.coordinators.consumer_groups.classic_members import IdOf, NameOf, assignment_bytes, ids
from tidelog.broker.coordinators.consumer_groups.consumer_group import (
    NOTHING,
    Change,
    ConsumerGroup,
    ConsumerMember,
    RefusedError,
    Subscription,
    current_record,
    subscription_record,
    target_record,
    united,
)
from tidelog.broker.coordinators.groups.group import Group, Member
from tidelog.broker.coordinators.groups.membership import add, choose_protocol
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.group_settings import DOWNGRADES, UPGRADES
from tidelog.errors import ProtocolError
from tidelog.wire.coordinator import consumer_group as records
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_subscription
from tidelog.wire.error_codes import ErrorCode

# --- upgrade


def check_upgrade(group: Group, config: BrokerConfig) -> None:
    """Raise RefusedError (GROUP_ID_NOT_FOUND) unless a classic group may become a consumer group."""
    reason = None
    if config.group_consumer_migration_policy not in UPGRADES:
        reason = f"group.consumer.migration.policy is {config.group_consumer_migration_policy}"
    elif group.protocol_type != PROTOCOL_TYPE:
        reason = f"its members are not consumers, but have the protocol type {group.protocol_type!r}"
    elif len(group.members) > config.group_consumer_max_size:
        reason = f"it has {len(group.members)} members, more than group.consumer.max.size"
    if reason is not None:
        raise RefusedError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"the classic group {group.group_id!r} cannot become a consumer group: {reason}"
        )


def upgraded(group: Group, id_of: IdOf) -> list[Change]:
    """Return the records of the consumer group that a classic group becomes. Each member keeps its assignment.

    Raises RefusedError (GROUP_ID_NOT_FOUND) if a member's metadata cannot be read, or its assignment contains user data of a
    client-side assignor.
    """
    members = []
    protocol = group.protocol_name or choose_protocol(group)
    for one in group.members.values():
        try:
            wanted = read_subscription(one.protocols[protocol])
            given = read_assignment(one.assignment) if one.assignment else None
        except ProtocolError as error:
            reason = f"the metadata of member {one.member_id!r} cannot be read: {error}"
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, reason) from None
        if given is not None and given.user_data:
            reason = f"the assignment of member {one.member_id!r} has user data of a client-side assignor, which would be lost"
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        members.append(
            ConsumerMember(
                one.member_id,
                instance_id=one.group_instance_id,
                rack_id=wanted.rack_id,
                client_id=one.client_id,
                client_host=one.client_host,
                subscription=Subscription(tuple(sorted(set(wanted.topics)))),
                rebalance_timeout_ms=one.rebalance_timeout_ms,
                classic=records.ClassicMemberMetadata(
                    one.session_timeout_ms, [records.ClassicProtocol(name, data) for name, data in one.protocols.items()]
                ),
                epoch=group.generation_id,
                previous_epoch=group.generation_id,
                assigned=NOTHING if given is None else ids(given.assigned_partitions, id_of),
            )
        )
    group_id, epoch = group.group_id, group.generation_id
    return [
        *(subscription_record(group_id, one) for one in members),
        Change(records.ConsumerGroupMetadataKey(group_id), records.ConsumerGroupMetadataValue(epoch)),
        *(target_record(group_id, one.member_id, one.assigned) for one in members),
        Change(
            records.ConsumerGroupTargetAssignmentMetadataKey(group_id), records.ConsumerGroupTargetAssignmentMetadataValue(epoch)
        ),
        *(current_record(group_id, one) for one in members),
    ]


# --- downgrade


def may_downgrade(consumer: ConsumerGroup, leaving: Collection[str], config: BrokerConfig, *, is_replaced: bool = False) -> bool:
    """Whether a consumer group becomes a classic group when the leaving members are gone: only classic members are left, and
    the configuration allows it. With `is_replaced`, a classic member takes the place of the leaving member.
    """
    if config.group_consumer_migration_policy not in DOWNGRADES:
        return False
    if any((member_id in leaving) == (member.classic is not None) for member_id, member in consumer.members.items()):
        return False
    left = len(consumer.members) - (0 if is_replaced else len(leaving))
    return 0 < left <= config.group_max_size


def downgraded(consumer: ConsumerGroup, leaving: Collection[str], name_of: NameOf, now_ms: int, *, rebalances: bool) -> Group:
    """Return the stable classic group that a consumer group becomes without the leaving members. Each member gets its target
    assignment. If the group rebalances at once, each member keeps the partitions that it still reads.

    Kafka 4.2 gives each member its target assignment in both cases. Then two members may read the same partition: if the group
    becomes a consumer group again before all members have rejoined, a partition's previous owner reads it until its next
    heartbeat.
    """
    group = Group(consumer.group_id, now_ms)
    for one in consumer.members.values():
        if one.member_id in leaving:
            continue
        assert one.classic is not None
        add(
            group,
            Member(
                one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout_ms=one.rebalance_timeout_ms,
                session_timeout_ms=one.classic.session_timeout_ms,
                protocol_type=PROTOCOL_TYPE,
                protocols={protocol.name: protocol.metadata for protocol in one.classic.supported_protocols},
            ),
        )
    group.generation_id = consumer.epoch
    group.protocol_name = choose_protocol(group)
    for member in group.members.values():
        one = consumer.members[member.member_id]
        held = united(one.assigned, one.pending) if rebalances else consumer.targets.get(member.member_id, NOTHING)
        member.assignment = assignment_bytes(held, member.protocols[group.protocol_name], name_of)
    return group
