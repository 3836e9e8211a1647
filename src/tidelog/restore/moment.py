"""Reads the state at a moment from Kafka's internal topics: groups' committed offsets, and transactions with a decided commit."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.broker.coordinators.transactions.transaction import TransactionState
from tidelog.broker.coordinators.transactions.transaction_records import read_transactions
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.group_table import GroupTable
from tidelog.groups.offsets_topic import partition_of
from tidelog.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.sources.files.folder_groups import batches_of

Positions = dict[str, dict[TopicPartition, CommittedOffset]]
"""Group → partition → committed offset."""

_DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})


def positions_at(log_dir: LogDir, ends: Mapping[int, int]) -> Positions:
    """Return the groups' committed offsets from the records of `__consumer_offsets` before each partition's end offset.

    Raises CorruptDataError, ProtocolError.
    """
    found: Positions = {}
    for partition, end_offset in sorted(ends.items()):
        table = GroupTable()
        with log_dir.log(OFFSETS_TOPIC, partition) as log:
            table.read(batches_of(log, end_offset))
        for name, group in table.all_groups().items():
            offsets = dict(group.offsets.all())
            # If partitions were added, a group may be in two of them: the partition that the group's name maps to counts.
            if offsets and (name not in found or partition_of(name, len(ends)) == partition):
                found[name] = offsets
    return found


def decided_commits(log_dir: LogDir, ends: Mapping[int, int]) -> frozenset[int]:
    """Return the producer ids whose last transaction was committed, from the records of `__transaction_state` before each
    partition's end offset. The decision is stored in that topic before any partition gets the marker.

    Raises CorruptDataError, ProtocolError.
    """
    found: set[int] = set()
    for partition, end_offset in ends.items():
        with log_dir.log(TRANSACTIONS_TOPIC, partition) as log:
            transactions = read_transactions(batches_of(log, end_offset)).values()
            found.update(one.producer_id for one in transactions if one.state in _DECIDED)
    return frozenset(found)
