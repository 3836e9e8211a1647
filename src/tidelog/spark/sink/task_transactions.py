"""Manages transactions that the tasks of a write to brokers begin, and that the driver ends.

A task with many rows sends them itself. Spark may run a task again, or twice at the same time, so each attempt has its own
transaction, `<transactional id>-task-<task>-<attempt>`. Transactions of attempts that Spark does not accept are aborted. Kafka
cannot end several transactions atomically, so the decision is recorded first: the driver's own transaction commits the list of
the tasks' transactions together with the micro-batch's epoch. From then on the tasks' transactions must be committed. If the
driver dies, the next driver commits them; its tasks find the epoch and send nothing::

    tasks     InitProducerId, Produce ...                      open transactions
    driver    AddPartitionsToTxn(each)                         is each still open?
    driver    TxnOffsetCommit(epoch, list), EndTxn             decided
    driver    EndTxn(each)                                     visible, one task after the other
    driver    ListTransactions, InitProducerId(others)         aborts what killed attempts left

The list is spread over groups `tidelog-sink-<transactional id>-tasks-<n>`, because brokers limit the metadata of an offset to 4
KiB.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.client.produce.transaction_coordinator import TransactionCoordinator
from tidelog.errors import InvalidTxnStateError, ProducerFencedError, TidelogError
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.spark.sink.epochs import Epoch
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

IN_A_GROUP = 80
"""How many transactions fit into the metadata of one offset."""

_TASK = "-task-"
_ABORT_TIMEOUT_MS = 60_000

_log = logging.getLogger("tidelog.spark")


@dataclass(frozen=True, slots=True)
class TaskTransaction:
    """A task's transaction, which is still open."""

    task: str
    """The task's number and attempt."""
    producer_id: int
    producer_epoch: int
    keys: tuple[TopicPartition, ...] = ()
    """The partitions in the transaction. Empty if the transaction was read from a group."""
    record_count: int = 0
    safe_until_ms: int = 0
    """The time (epoch ms) until which the transaction may be decided: its beginning by the task's clock, plus nine tenths of its
    timeout.
    """

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.producer_epoch, 0)


@contextmanager
def visible_later() -> Iterator[None]:
    """Turn an error in the block into a log message, without failing the write. The rows are already committed, and a failed
    write would be repeated.
    """
    try:
        yield
    except TidelogError as error:
        _log.warning("the rows are committed, but readers may see them later: %s", error)


def id_of(name: str, task: str) -> str:
    """Return the transactional id for a task's attempt. `name` is the writer's transactional id."""
    return f"{name}{_TASK}{task}"


def store(appender: BatchAppender, group: str, topics: Collection[str], epoch: Epoch, opened: Sequence[TaskTransaction]) -> None:
    """Add the epoch and the tasks' transactions to the driver's transaction."""
    parts = [opened[first : first + IN_A_GROUP] for first in range(0, len(opened), IN_A_GROUP)]
    texts = {group: epoch.to_json() if not parts else json.dumps(json.loads(epoch.to_json()) | {"groups": len(parts)})}
    for number, part in enumerate(parts):
        listed = [f"{one.task}:{one.producer_id}:{one.producer_epoch}" for one in part]
        texts[_group_of_list(group, number)] = json.dumps([epoch.batch_id, listed], separators=(",", ":"))
    for each, text in texts.items():
        appender.send_offsets(each, {TopicPartition(topic, 0): (epoch.batch_id + 1, text) for topic in topics})


def stored(cluster: Cluster, group: str, epoch: Epoch) -> list[TaskTransaction]:
    """Return the tasks' transactions in the list that was committed with an epoch."""
    counts = [
        found.get("groups", 0)
        for _, text in committed_offsets(cluster, group, None).values()
        if isinstance(found := _parsed(text), dict) and (found.get("query"), found.get("epoch")) == epoch
    ]
    return [one for number in range(max(counts, default=0)) for one in _listed(cluster, _group_of_list(group, number), epoch)]


def _listed(cluster: Cluster, group: str, epoch: Epoch) -> Iterator[TaskTransaction]:
    for _, text in committed_offsets(cluster, group, None).values():
        found = _parsed(text)
        if isinstance(found, list) and found[0] == epoch.batch_id:
            for task, producer_id, producer_epoch in (str(one).split(":") for one in found[1]):
                yield TaskTransaction(task, int(producer_id), int(producer_epoch))
            return


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _group_of_list(group: str, number: int) -> str:
    return f"{group}-tasks-{number}"


class TaskTransactions:
    """The tasks' transactions of one commit, in the driver."""

    def __init__(self, cluster: Cluster, name: str, opened: Sequence[TaskTransaction]) -> None:
        self._cluster, self._name = cluster, name
        self._opened = [(one, TransactionCoordinator(cluster, id_of(name, one.task))) for one in opened]

    def check(self, now_ms: int) -> None:
        """Raise ProducerFencedError if a transaction has timed out or is about to time out."""
        for one, coordinator in self._opened:
            if now_ms > one.safe_until_ms:
                raise ProducerFencedError(
                    f"a task's transaction is about to time out: task {one.task} began too long ago, or machines' clocks differ",
                    path=str(self._cluster),
                )
            # This partition is in the transaction already, so the coordinator only checks whether producer id and epoch are still
            # valid.
            coordinator.add_partitions(one.producer, one.keys[:1])

    def commit(self, remedy: str) -> None:
        """Commit all transactions, including any that are already committed, and wait until readers see their rows.

        Raises ProducerFencedError if a transaction has been aborted; all others are committed by then. `remedy` completes the
        error message.
        """
        lost: list[TidelogError] = []
        ended: list[tuple[TaskTransaction, TransactionCoordinator]] = []
        for one, coordinator in self._opened:
            try:
                coordinator.end(one.producer, is_commit=True)
                ended.append((one, coordinator))
            except (ProducerFencedError, InvalidTxnStateError) as error:
                lost.append(error)
        with visible_later():
            for one, coordinator in ended:
                coordinator.wait_until_visible(one.producer)
        if lost:
            raise ProducerFencedError(
                f"the rows of {len(lost)} of {len(self._opened)} tasks were aborted, because their transactions timed out before"
                f" the driver ended them; the rows of all other tasks are committed: {remedy}",
                path=str(self._cluster),
            ) from lost[0]

    def abort(self) -> None:
        """Abort all open transactions. Each gets a new producer epoch, because with the old epoch `check` would begin a new
        transaction.
        """
        for _, coordinator in self._opened:
            coordinator.init(_ABORT_TIMEOUT_MS)

    def abort_others(self) -> None:
        """Abort the transactions of attempts that Spark killed or did not accept, because open transactions hold up
        read_committed consumers. Call this once the transactions of this commit have ended. Kafka before 3.0 cannot list
        transactions, so there they time out.
        """
        own = re.compile(re.escape(id_of(self._name, "")) + r"\d+-\d+")
        for name in filter(own.fullmatch, _open_transactions(self._cluster)):
            with suppress(TidelogError):
                TransactionCoordinator(self._cluster, name).init(_ABORT_TIMEOUT_MS)
                _log.info("aborted transaction %s, which a task left open", name)


def _open_transactions(cluster: Cluster) -> list[str]:
    """Return the transactional ids of all open transactions that this user is authorized to describe."""
    found: list[str] = []
    request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
    for address in cluster.brokers.values():
        with suppress(TidelogError), cluster.connection_to(address) as connection:
            if connection.offers(ListTransactionsRequest, 0):
                answer = connection.ask(request, 0, ListTransactionsResponse)
                found += [state.transactional_id for state in answer.transaction_states]
    return found
