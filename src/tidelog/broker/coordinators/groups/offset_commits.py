"""Checks offset commits and writes them to the log, for OffsetCommit and TxnOffsetCommit.

| the group | the committer | OffsetCommit | TxnOffsetCommit |
|---|---|---|---|
| is unknown | not a member (no generation) | the group is created | the group is created |
| | claims to be a member | ILLEGAL_GENERATION | as for an empty group |
| is empty | not a member | committed | committed |
| | claims to be a member | UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID | the same |
| has members | not a member | UNKNOWN_MEMBER_ID | committed: older clients do not send a member id |
| | a member of a different generation | ILLEGAL_GENERATION | the same |
| | a member | committed; its session timeout restarts | committed |
| … and waits for the leader's assignment | a member | REBALANCE_IN_PROGRESS | committed |

The table is for classic groups. Consumer groups (KIP-848) have other errors in OffsetCommit: STALE_MEMBER_EPOCH for a member with
a different epoch, and UNSUPPORTED_VERSION before version 9. If they are enabled, an unknown group gets GROUP_ID_NOT_FOUND from
version 9 on.

All offsets of a request form one batch in the log, so either all are stored or none. An offset with metadata longer than
`offset.metadata.max.bytes` gets an error; the others are committed.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidelog.broker.coordinators.append_refusals import code_of
from tidelog.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from tidelog.broker.coordinators.groups.group import UNKNOWN_MEMBER, Group, GroupState
from tidelog.broker.coordinators.groups.membership import check_member
from tidelog.broker.requests.slices import Elsewhere, Until
from tidelog.errors import TidelogError
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.offset_records import OFFSET_VALUE_VERSION, offset_entries
from tidelog.model import TopicPartition
from tidelog.records import kernel
from tidelog.records.builder import Producer
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.coordinators.groups.committing_broker import CommittingBroker
    from tidelog.broker.topics.topics import Topics

Codes = dict[TopicPartition, ErrorCode]

Committing: TypeAlias = "Generator[Elsewhere | Until | None, Any, Codes]"

AT_ONCE: Final = 256
"""A commit of at least this many offsets is checked in slices, and its batch is built on another thread."""

FIRST_WITH_EPOCHS: Final = 9
"""The first version of OffsetCommit for members of consumer groups (KIP-848)."""

_TXN_SEQUENCE: Final = 0
"""The base sequence of each batch that a coordinator writes for a producer. The log does not check sequences of such batches."""

_COMMIT_CODES: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""Maps errors of the log and of the transaction coordinator to the error codes that clients get."""


class Committer(NamedTuple):
    """The group, member and generation in a commit request. A negative generation means that the client is not a member."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    api_version: int = 9
    """The version of the OffsetCommit request."""


class _Kept(NamedTuple):
    """The offsets whose metadata is not too long, and the batch of their records. `batch` is an error if it could not be
    built, and None if there are no offsets.
    """

    offsets: dict[TopicPartition, CommittedOffset]
    batch: bytearray | TidelogError | None


class Transaction(NamedTuple):
    """The transaction that a commit is part of."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def commit(broker: CommittingBroker, committer: Committer, offsets: Mapping[TopicPartition, CommittedOffset]) -> Committing:
    """Commit offsets for a group. Return an error code for each partition. Runs in slices."""
    code = broker.groups.code_for(committer.group_id)
    kept = yield from _kept(broker, committer.group_id, offsets, None)
    if len(offsets) >= AT_ONCE:
        code = code or broker.groups.code_for(committer.group_id)  # Other requests may have run in the meantime.
    if code is ErrorCode.NONE:
        group = broker.groups.get(committer.group_id)
        if group is None and committer.generation_id < 0:
            group = broker.groups.get_or_create(committer.group_id)
        if group is None:
            knows_epochs = broker.groups.consumers.is_enabled and committer.api_version >= FIRST_WITH_EPOCHS
            code = ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        else:
            code = _refusal(group, committer, is_transactional=False)
            if code is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
            if code is ErrorCode.NONE:
                if group.members:
                    broker.groups.rebalance.touch(group, group.members[committer.member_id])
                code = _store(broker, group, kept, None)
                if len(kept.offsets) < len(offsets) or len(offsets) >= AT_ONCE:
                    return (yield from _codes(offsets, kept.offsets, code))
    return dict.fromkeys(offsets, code)


def commit_usual(broker: CommittingBroker, committer: Committer, topics: list[list[Any]]) -> bool:
    """Commit the offsets in the rows of a request if the group is known, allows it, and nothing has to be waited for.

    Otherwise return False: nothing was changed, and `commit` says why. `topics` are described at `kernel.build_commit_batch`.
    """
    groups, log = broker.groups, broker.groups.log
    group = groups.get(committer.group_id)
    if group is None or group.state is GroupState.COMPLETING_REBALANCE or groups.offset_version != OFFSET_VALUE_VERSION:
        return False
    partition = log.partition_at_once(committer.group_id)
    if partition is None or _refusal(group, committer, is_transactional=False):
        return False
    now_ms = broker.clock.now_ms()
    batch = kernel.build_commit_batch(committer.group_id, topics, now_ms, broker.config.offset_metadata_max_bytes)
    if batch is None:
        return False
    try:
        record_offset = log.append_batch(partition, batch)
    except TidelogError:
        return False
    if group.members:
        groups.rebalance.touch(group, group.members[committer.member_id])
    group.offsets.put_rows(topics, now_ms, record_offset)
    return True


def commit_in_transaction(
    broker: CommittingBroker,
    committer: Committer,
    transaction: Transaction,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    is_adding: bool = False,
) -> Committing:
    """Commit offsets for a group as part of a transaction. Return an error code for each partition. Runs in slices.

    With `is_adding`, the coordinator adds the group's partition to the transaction if it is missing.
    """
    groups = broker.groups
    code = groups.code_for(committer.group_id) if committer.group_id else ErrorCode.INVALID_GROUP_ID
    kept = yield from _kept(broker, committer.group_id, offsets, transaction)
    code = code or groups.code_for(committer.group_id)
    if code is ErrorCode.NONE:
        code = yield from _verified(broker, committer.group_id, transaction, is_adding=is_adding)
    code = code or groups.code_for(committer.group_id)
    if code is ErrorCode.NONE:
        group = groups.get_or_create(committer.group_id)
        code = _refusal(group, committer, is_transactional=True)
        if code is ErrorCode.NONE:
            code = _store(broker, group, kept, transaction)
            if len(kept.offsets) < len(offsets) or len(offsets) >= AT_ONCE:
                return (yield from _codes(offsets, kept.offsets, code))
    return dict.fromkeys(offsets, code)


def _verified(
    broker: CommittingBroker, group_id: str, transaction: Transaction, *, is_adding: bool
) -> Generator[Until, Any, ErrorCode]:
    """Check that the group was added to the transaction (AddOffsetsToTxn, KIP-890).

    If the transaction is already open in the log, the check is skipped, because it must have passed before the first record
    was written. If a marker arrives before the coordinator answers, the result is INVALID_TXN_STATE, because the transaction
    has ended.
    """
    if not (broker.config.transaction_partition_verification_enable or is_adding):
        return ErrorCode.NONE
    key = broker.groups.log.key(broker.groups.log.partition_of(group_id))
    log = broker.manager.logs.get(key)
    entry = None if log is None else log.producer_state.last_entry(transaction.producer_id)
    if entry is not None and entry.has_open_transaction and entry.producer_epoch == transaction.producer_epoch:
        return ErrorCode.NONE
    state = None if log is None or (broker.peers is None and not is_adding) else log.producer_state
    guard = None
    if state is not None:
        guard = state.maybe_create_verification(
            transaction.producer_id, _TXN_SEQUENCE, transaction.producer_epoch, has_epoch_each=is_adding
        )
    codes = yield from broker.transactions.verified(*transaction, [key], is_adding=is_adding)
    code = codes[key]
    if code is ErrorCode.NONE and state is not None and state.verification(transaction.producer_id) is not guard:
        # Another request of the producer may have opened the transaction in the meantime.
        entry = state.last_entry(transaction.producer_id)
        if entry is None or not entry.has_open_transaction or entry.producer_epoch != transaction.producer_epoch:
            return ErrorCode.INVALID_TXN_STATE
    return _COMMIT_CODES.get(code, code)


def _refusal(group: Group, committer: Committer, *, is_transactional: bool) -> ErrorCode:
    """Return NONE if the committer may commit, otherwise the error code from the module's table."""
    generation_id, member_id, instance_id = committer.generation_id, committer.member_id, committer.group_instance_id
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.consumer is not None:
        return _consumer_refusal(group.consumer, committer, is_transactional=is_transactional)
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id >= 0 or member_id != UNKNOWN_MEMBER or instance_id is not None:
        code = check_member(group, member_id, instance_id)
        if code is ErrorCode.NONE and generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return code
    if not is_transactional and group.state is not GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _consumer_refusal(consumer: ConsumerGroup, committer: Committer, *, is_transactional: bool) -> ErrorCode:
    _, epoch, member_id, instance_id, version = committer
    if epoch < 0 and not consumer.members:
        return ErrorCode.NONE
    if is_transactional and epoch < 0 and member_id == UNKNOWN_MEMBER and instance_id is None:
        return ErrorCode.NONE
    code = check_epoch(consumer, member_id, epoch)
    if is_transactional:
        return ErrorCode.ILLEGAL_GENERATION if code is ErrorCode.STALE_MEMBER_EPOCH else code
    if version < FIRST_WITH_EPOCHS and code is not ErrorCode.UNKNOWN_MEMBER_ID and consumer.members[member_id].classic is None:
        return ErrorCode.UNSUPPORTED_VERSION
    return code


def check_epoch(consumer: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    """Return NONE if the consumer group has this member with this epoch, otherwise the error code."""
    member = consumer.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.epoch == epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _kept(
    broker: CommittingBroker, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], transaction: Transaction | None
) -> Generator[Elsewhere | None, Any, _Kept]:
    """Return the offsets to store, with their batch. A batch of many offsets is built on another thread."""
    longest = broker.config.offset_metadata_max_bytes
    kept: dict[TopicPartition, CommittedOffset] = {}
    for count, (key, one) in enumerate(offsets.items()):
        if not one.metadata or _java_length(one.metadata) <= longest:
            kept[key] = one
        if count % AT_ONCE == AT_ONCE - 1:
            yield None

    if len(kept) >= AT_ONCE:
        return _Kept(kept, (yield Elsewhere(partial(_build, broker, group_id, kept, transaction))))
    return _Kept(kept, _build(broker, group_id, kept, transaction) if kept else None)


def _build(
    broker: CommittingBroker, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], transaction: Transaction | None
) -> bytearray | TidelogError:
    """Return the batch of offsets, or the error if it cannot be built. The caller reports errors of the group or the
    transaction first.
    """
    entries = offset_entries(group_id, offsets.items(), broker.groups.offset_version)
    try:
        if transaction is None:
            return broker.groups.log.build(entries)
        producer = Producer(transaction.producer_id, transaction.producer_epoch, _TXN_SEQUENCE)
        return broker.groups.log.build(entries, producer=producer, is_transactional=True)
    except TidelogError as error:
        return error


def _codes(
    offsets: Collection[TopicPartition], kept: Collection[TopicPartition], code: ErrorCode
) -> Generator[None, None, Codes]:
    codes: Codes = {}
    for count, key in enumerate(offsets):
        codes[key] = code if key in kept else ErrorCode.OFFSET_METADATA_TOO_LARGE
        if count % 256 == 255:
            yield None
    return codes


def _store(broker: CommittingBroker, group: Group, prepared: _Kept, transaction: Transaction | None) -> ErrorCode:
    """Write offsets to the log, then to memory: either all of them or none. Return NONE or the error code."""
    code = ErrorCode.NONE
    kept, batch = prepared
    if batch is not None:
        groups = broker.groups
        try:
            if isinstance(batch, TidelogError):
                raise batch
            record_offset = groups.log.append_batch(groups.log.partition_of(group.group_id), batch)
        except TidelogError as error:
            groups.retries.failed("group %r: could not commit offsets: %s", group.group_id, error, level=logging.INFO)
            code = code_of(error)
            code = _COMMIT_CODES.get(code, code)
        else:
            for key, one in kept.items():
                # Making a new tuple is much faster than `_replace`.
                placed = CommittedOffset(*one[:-1], record_offset)
                if transaction is None:
                    group.offsets.put(key, placed)
                else:
                    groups.note_pending(transaction.producer_id, group, key, placed)
    return code


def _java_length(text: str) -> int:
    """Return a text's length as Java counts it, in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# --- partitions, topic by topic


def unknown_partitions(topics: Topics, keys: Iterable[TopicPartition]) -> Generator[None, None, Codes]:
    """Return the unknown partitions among `keys`, each with UNKNOWN_TOPIC_OR_PARTITION. Runs in slices."""
    codes: Codes = {}
    for count, key in enumerate(keys):
        if not is_known(topics, key):
            codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if count % 64 == 63:
            yield None
    return codes


def without(
    offsets: Mapping[TopicPartition, CommittedOffset], codes: Collection[TopicPartition]
) -> Generator[None, None, dict[TopicPartition, CommittedOffset]]:
    """Return the offsets of partitions that are not in `codes`. Runs in slices."""
    known = {}
    for count, (key, one) in enumerate(offsets.items()):
        if key not in codes:
            known[key] = one
        if count % 256 == 255:
            yield None
    return known


def is_known(topics: Topics, key: TopicPartition) -> bool:
    """Whether a partition exists."""
    view = topics.get(key.topic)
    if view is None:
        return False
    partitions = view.partitions
    index = key.partition
    if 0 <= index < len(partitions) and partitions[index].partition == index:
        return True
    if partitions[-1].partition == len(partitions) - 1:
        return False
    # In a cluster a folder may have only some partitions of a topic.
    at = bisect_left(partitions, index, key=lambda one: one.partition)
    return at < len(partitions) and partitions[at].partition == index


def are_known(topics: Topics, name: str, rows: list[list[Any]]) -> bool:
    """Whether the partitions of a topic exist. `rows` begin with the number of the partition."""
    view = topics.get(name)
    if view is None:
        return False
    count = len(view.partitions)
    if view.partitions[-1].partition != count - 1:
        return all(is_known(topics, TopicPartition(name, row[0])) for row in rows)
    indexes = [row[0] for row in rows]
    return not indexes or (min(indexes) >= 0 and max(indexes) < count)


def by_topic(
    codes: Mapping[TopicPartition, ErrorCode], of_topic: Callable[..., Any], of_partition: Callable[[int, ErrorCode], Any]
) -> Generator[None, None, list[Any]]:
    """Return the response's array of topics with the results of their partitions. Runs in slices."""
    topics: dict[str, Any] = {}
    for count, ((name, partition), code) in enumerate(codes.items()):
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = of_topic(name=name, partitions=[])
        topic.partitions.append(of_partition(partition, code))
        if count % 128 == 127:
            yield None
    return list(topics.values())
