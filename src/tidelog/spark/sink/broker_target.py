"""Writes to brokers, in transactions or at least once.

| guarantee | sender | readers see |
|---|---|---|
| exactly-once: small tasks, or `atomic` | the driver, once all tasks are done | with read_committed, all of these rows or none |
| exactly-once: larger tasks | each task; the driver ends the task's transaction (`task_transactions`) | the same, task by task |
| at-least-once | each task, idempotently | rows of tasks that failed and ran again are duplicated |

The driver's transaction for a micro-batch::

    InitProducerId(transactional id)     fences any other running driver, aborts a dead driver's transaction
    OffsetFetch(group, stable)           if (query, batch) was committed before, this is a replay: stop here
    Produce ...                          sends the batches spooled by the tasks
    TxnOffsetCommit(group)               commits (query, batch), in the metadata of partition 0 of each written topic
    EndTxn(commit)

If a transaction is open longer than its timeout, the broker aborts it and fences its producer. Spark would then repeat that
micro-batch forever. So the requested timeout grows with the bytes to be sent (`SLOW_BYTES_PER_S`), up to the brokers'
transaction.max.timeout.ms. If the user's timeout looks too short, a warning is logged before the transaction begins. If it was
too short, the error says what to change.

The group, `tidelog-sink-<transactional id>`, has no members. It has a commit under every topic of the micro-batch, so that it
survives the deletion of a topic. The group's commits expire `offsets.retention.minutes` (7 days) after the last commit. So if a
query is killed after its transaction ended but before Spark recorded that, and is restarted only after that time, it writes one
micro-batch again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tidelog.client import transactions_supported
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.clock import Clock, SteadyClock, SystemClock
from tidelog.errors import (
    BrokerError,
    ProducerError,
    ProducerFencedError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from tidelog.model import TopicPartition
from tidelog.spark.sink.epochs import Epoch, is_replay, parse_epoch
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.spool import SpooledBatches
from tidelog.spark.sink.task_transactions import TaskTransaction, TaskTransactions, id_of, store, stored, visible_later
from tidelog.wire.error_codes import ErrorCode

GROUP_PREFIX = "tidelog-sink-"
"""The prefix of the groups that store epochs. Without a prefix, a transactional id might equal the name of a consumer group."""

CLIENT_ID = "tidelog-spark"

SLOW_BYTES_PER_S = 1 << 20
"""The default timeout assumes at least this rate. A slower commit is aborted, unless the user sets a longer timeout."""

USUAL_BYTES_PER_S = 16 << 20
"""If a user's timeout is too short even at this rate, a warning is logged."""

_SHORTER_MS = (900_000, 300_000)
"""The timeouts to try next if brokers refuse a longer timeout. Brokers' transaction.max.timeout.ms is 15 minutes by default."""

_HINT = "set deliveryGuarantee to at-least-once, which may write rows twice"


_log = logging.getLogger("tidelog.spark")


@contextmanager
def partition_counts(options: SinkOptions) -> Iterator[Callable[[str], int]]:
    """In a task: provide a function that returns a topic's number of partitions. The broker creates a missing topic if it is
    configured to do so.

    Raises UnknownTopicOrPartitionError if the broker does not create it.
    """
    with _cluster(options) as cluster:
        yield lambda topic: len(cluster.topic(topic, create=True).partitions)


def send_from_task(options: SinkOptions, batches: Iterator[tuple[TopicPartition, bytearray]]) -> int:
    """In a task, at-least-once: send the batches, wait until all are acknowledged, and return the number of records."""
    with _cluster(options) as cluster, BatchAppender(cluster) as appender:
        appender.init()
        for key, batch in batches:
            appender.append(key, batch)
        return sum(appended.record_count for appended in appender.flush())


def send_in_transaction(
    options: SinkOptions,
    batches: Iterator[tuple[TopicPartition, bytearray]],
    task: str,
    batch_id: int | None,
    clock: Clock | None = None,
) -> TaskTransaction | None:
    """In a task, exactly-once: send the batches, leave the transaction open, and return it. Return None if the micro-batch was
    written before. `task` is the task's number and attempt. `options` are as for `commit_to_broker`.
    """
    assert options.transactional_id is not None
    with _cluster(options) as cluster:
        _check_transactions(cluster, options)
        epoch = None if batch_id is None else Epoch(options.query_id or "", batch_id)
        group = GROUP_PREFIX + options.transactional_id
        if epoch is not None and is_replay(last_epoch(cluster, group, epoch.query_id), epoch, options.place):
            for _ in batches:
                pass  # Spark expects a task to read all its rows.
            return None
        # The number of bytes is not known yet.
        timeouts_ms = _timeouts_ms(options, _SHORTER_MS[0] * SLOW_BYTES_PER_S // 1000)
        with _begun(cluster, id_of(options.transactional_id, task), timeouts_ms) as (appender, timeout_ms):
            began_ms = (SystemClock() if clock is None else clock).now_ms()
            appender.begin()
            for key, batch in batches:
                appender.append(key, batch)
            appended = appender.flush()
            keys = tuple(sorted({one.key for one in appended}))
            count = sum(one.record_count for one in appended)
            producer = appender.leave_open()
            return TaskTransaction(
                task, producer.producer_id, producer.producer_epoch, keys, count, began_ms + timeout_ms * 9 // 10
            )


def commit_to_broker(
    options: SinkOptions,
    spooled: Sequence[SpooledBatches],
    batch_id: int | None,
    clock: Clock | None = None,
    opened: Sequence[TaskTransaction] = (),
) -> None:
    """On the driver, exactly-once: write all spooled batches in one transaction, and commit the transactions that tasks have
    opened (`opened`).

    `options.transactional_id` must be set. For a stream, `options.query_id` and `batch_id` are set too: the transaction commits
    `epochs.Epoch(query_id, batch_id).to_json()`, and a replay is detected with `epochs.is_replay`. A batch write has neither id.
    Raises ProducerFencedError if another driver writes with the same transactional id, or the timeout was too short;
    UnsupportedVersionError or UnsupportedForMessageFormatError if transactions are not supported. After these errors nothing is
    committed.
    """
    name = options.transactional_id
    assert name is not None
    group = GROUP_PREFIX + name
    epoch = None if batch_id is None else Epoch(options.query_id or "", batch_id)
    steady = SteadyClock() if clock is None else clock
    with _cluster(options) as cluster:
        _check_transactions(cluster, options)
        tasks = TaskTransactions(cluster, name, opened)
        now_ms = (SystemClock() if clock is None else clock).now_ms()
        if epoch is None and not spooled:
            tasks.check(now_ms)
            tasks.commit("write the missing rows again; to avoid this, set the option atomic")
            tasks.abort_others()
            return
        size_bytes = sum(one.size_bytes for one in spooled)
        with _begun(cluster, name, _timeouts_ms(options, size_bytes)) as (appender, timeout_ms):
            if epoch is not None and is_replay(last_epoch(cluster, group, epoch.query_id), epoch, options.place):
                # Transactions that were opened when this micro-batch was repeated are not in the list.
                TaskTransactions(cluster, name, stored(cluster, group, epoch)).commit(_remedy(group))
                tasks.abort()
                return
            if size_bytes * 1000 > timeout_ms * USUAL_BYTES_PER_S:
                _log.warning(
                    "a commit of %d MiB may take longer than the transaction timeout: %s",
                    size_bytes >> 20,
                    _way_out(timeout_ms),
                )
            with _explained(timeout_ms, size_bytes, steady):
                tasks.check(now_ms)
                _append(cluster, appender, spooled, group, epoch, opened)
        tasks.commit(_remedy(group))
        if opened:
            tasks.abort_others()


def abort_at_broker(options: SinkOptions, batch_id: int | None, opened: Sequence[TaskTransaction]) -> None:
    """On the driver: abort the tasks' transactions, unless the decision to commit them has been recorded."""
    name = options.transactional_id
    assert name is not None
    with _cluster(options) as cluster:
        if batch_id is not None:
            found = last_epoch(cluster, GROUP_PREFIX + name, options.query_id or "")
            if found is not None and found.batch_id >= batch_id:
                return
        tasks = TaskTransactions(cluster, name, opened)
        tasks.abort()
        tasks.abort_others()


def _remedy(group: str) -> str:
    return (
        f"to have this micro-batch written again, with the committed rows twice, delete the consumer group {group} and start the"
        " query again. To avoid this, set the option atomic"
    )


def _check_transactions(cluster: Cluster, options: SinkOptions) -> None:
    if not transactions_supported(cluster):
        raise UnsupportedVersionError(f"the brokers do not support transactions; {_HINT}", path=options.place)


@contextmanager
def _begun(cluster: Cluster, name: str, timeouts_ms: Sequence[int]) -> Iterator[tuple[BatchAppender, int]]:
    """Yield a producer with the transactional id `name`, and its timeout: the first of `timeouts_ms` that the brokers accept."""
    for timeout_ms in timeouts_ms:
        with BatchAppender(cluster, transactional_id=name, transaction_timeout_ms=timeout_ms) as appender:
            try:
                appender.init()
            except BrokerError as error:
                if error.error_code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                    raise
                if timeout_ms != timeouts_ms[-1]:
                    continue
                error.message += (
                    f": {timeout_ms} ms (option transactionTimeout) is more than the brokers' transaction.max.timeout.ms"
                )
                raise
            yield appender, timeout_ms
            return


def _timeouts_ms(options: SinkOptions, size_bytes: int) -> list[int]:
    """Return the timeouts to request, in order. Each is requested only if the brokers refuse the previous one."""
    least, wanted = options.transaction_timeout_ms, min(size_bytes * 1000 // SLOW_BYTES_PER_S, 2**31 - 1)
    if options.is_timeout_given or wanted <= least:
        return [least]
    return [wanted, *(shorter for shorter in _SHORTER_MS if least < shorter < wanted), least]


def _way_out(timeout_ms: int) -> str:
    return (
        f"its timeout is {timeout_ms} ms; set a longer timeout with option transactionTimeout (up to the brokers'"
        " transaction.max.timeout.ms, 15 minutes unless set otherwise), make later micro-batches smaller (maxBytesPerTrigger or"
        " maxOffsetsPerTrigger of their source), or write with deliveryGuarantee at-least-once"
    )


@contextmanager
def _explained(timeout_ms: int, size_bytes: int, clock: Clock) -> Iterator[None]:
    """Add the cause and the remedy to an error in a transaction."""
    began_ms = clock.now_ms()
    try:
        yield
    except UnsupportedForMessageFormatError as error:
        error.message += f"; {_HINT}"
        raise
    except (BrokerError, ProducerError) as error:
        open_ms = clock.now_ms() - began_ms
        if open_ms >= timeout_ms:
            error.message = (
                f"the transaction of {size_bytes:,} bytes was open for {open_ms} ms, and the broker aborted it ({error.message});"
                f" {_way_out(timeout_ms)}"
            )
        elif isinstance(error, ProducerFencedError):
            error.message += f" (or it was open for longer than {timeout_ms} ms, option transactionTimeout)"
        raise


def last_epoch(cluster: Cluster, group: str, query_id: str) -> Epoch | None:
    """Return the last micro-batch of a query that was committed under any topic, or None if there is none."""
    kept = (parse_epoch(metadata) for _, metadata in committed_offsets(cluster, group, None).values())
    return max((epoch for epoch in kept if epoch is not None and epoch.query_id == query_id), default=None)


def _append(
    cluster: Cluster,
    appender: BatchAppender,
    spooled: Sequence[SpooledBatches],
    group: str,
    epoch: Epoch | None,
    opened: Sequence[TaskTransaction],
) -> None:
    topics = sorted({key.topic for keys in (*(one.keys for one in spooled), *(one.keys for one in opened)) for key in keys})
    cluster.refresh(topics)
    appender.begin()
    for one in spooled:
        for key, batch in one.batches():
            appender.append(key, batch)
    if epoch is not None:
        store(appender, group, topics, epoch, opened)
    appender.commit()
    with visible_later():
        appender.wait_until_visible()


def _cluster(options: SinkOptions) -> Cluster:
    assert options.brokers is not None
    return Cluster.at(options.brokers, CLIENT_ID)
