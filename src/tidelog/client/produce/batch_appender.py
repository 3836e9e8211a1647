"""Appends finished batches to any partitions. It is idempotent, keeps several requests in flight, and uses transactions if it has
a transactional id.

| | |
|---|---|
| a batch | magic 2, any codec, consecutive offsets; producer, sequence, transactional bit and checksum are set once, in place |
| sending | `produce_pipeline` sends batches soon; `append` blocks while 1 MiB or more waits |
| a partition that is new to a transaction | it is added before its first batch is sent, together with other new partitions |

After an error a transaction can only be aborted. `abort` then gets a new epoch. Sequences restart from 0, and brokers refuse late
requests, which would otherwise become part of the next transaction. If this producer is fenced, `abort` does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from tidelog.client.connections.cluster import Cluster
from tidelog.client.produce.produce_pipeline import MAX_IN_FLIGHT, Batch, ProducePipeline
from tidelog.client.produce.produce_pipeline import Appended as Appended
from tidelog.client.produce.transaction_coordinator import TransactionCoordinator, new_producer_id
from tidelog.errors import (
    BrokerUnreachableError,
    InvalidArgumentError,
    InvalidTxnStateError,
    ProducerFencedError,
    TidelogError,
)
from tidelog.model import TopicPartition
from tidelog.records.batch import read_header
from tidelog.records.builder import NO_PRODUCER, Producer
from tidelog.records.compression import Codec
from tidelog.records.patch import Writable

WAITING_BYTES = 1 << 20

_OLDEST_VERSION = 3
_ZSTD_VERSION = 7


class BatchAppender:
    """Appends finished batches to partitions. Its calls block; it is not thread-safe. The cluster's `timeout_ms` limits the time
    without progress.

    Methods raise BrokerError, BrokerUnreachableError, UnsupportedVersionError (before Kafka 0.11), UnknownTopicOrPartitionError,
    and the errors for refused batches (RecordTooLargeError, RecordValidationError, ...). `append` may raise an earlier batch's
    error. After an error only `abort`, `init` and `close` may be called.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._coordinator = None if transactional_id is None else TransactionCoordinator(cluster, transactional_id)
        self._pipeline = ProducePipeline(cluster, transactional_id, max_in_flight)
        self._order: list[Batch] = []
        self._is_begun = False
        self._is_empty = True
        """Whether the transaction is empty, so that the coordinator does not know about it."""
        self._is_committing = False
        """Whether the last commit's markers may be missing from some partitions."""
        self._failure: TidelogError | None = None

    @property
    def producer(self) -> Producer:
        """The producer id and epoch; `NO_PRODUCER` before `init`."""
        return self._pipeline.producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def init(self) -> None:
        """Get a producer id. With a transactional id, also fence its older producers and end their open transactions."""
        self._forget()
        self._failure = None
        if self._coordinator is None:
            self._pipeline.renew(new_producer_id(self._cluster))
        else:
            self._pipeline.renew(self._coordinator.init(self._timeout_ms))

    def begin(self) -> None:
        """Begin a transaction; brokers learn of it with its first batch or offset."""
        self._check(is_begun=False)
        if self._coordinator is None:
            raise InvalidArgumentError("a transaction needs a transactional id")
        self._order.clear()
        self._is_begun = True

    def append(self, key: TopicPartition, batch: Writable, tag: object = None) -> None:
        """Append a batch, which the appender then owns and changes. `flush` returns where it was stored, with its `tag`.

        Raises InvalidArgumentError unless `batch` is exactly one data batch of format v2 with consecutive offsets.
        """
        self._check(is_begun=self._coordinator is not None)
        header = read_header(batch)
        if header.magic != 2 or header.size != len(batch) or header.is_control:
            kind = "control " if header.is_control else ""
            raise InvalidArgumentError(
                f"cannot append to {key.topic}-{key.partition}",
                found=f"{len(batch)} bytes, a {kind}batch of v{header.magic}, {header.size} bytes",
                expected="one batch of v2 with data",
            )
        if header.record_count != header.last_offset - header.base_offset + 1:
            raise InvalidArgumentError(
                f"cannot append to {key.topic}-{key.partition}: the batch has gaps between its offsets",
                found=f"{header.record_count} records in {header.last_offset - header.base_offset + 1} offsets",
            )
        oldest = _ZSTD_VERSION if header.codec is Codec.ZSTD else _OLDEST_VERSION
        added = Batch(key, batch, header.record_count, oldest, tag)
        self._order.append(added)
        with self._noting():
            self._pipeline.add(added)
            self._pipeline.send()
            while self._pipeline.waiting_bytes > WAITING_BYTES:
                self._admit()
                self._pipeline.send()
                if self._pipeline.waiting_bytes > WAITING_BYTES:
                    self._pipeline.wait()

    def flush(self) -> list[Appended]:
        """Wait until all batches are acknowledged. Return where each batch since the last flush was stored, in the order of the
        `append` calls.
        """
        self._check(is_begun=None)
        self._settle()
        done = [batch.result for batch in self._order if batch.result is not None]
        self._order.clear()
        return done

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Add a group's offsets, each with its metadata, to the transaction. The topics must exist in this cluster."""
        self._check(is_begun=True)
        if offsets:
            with self._noting():
                assert self._coordinator is not None
                # From here on the coordinator may know the transaction, even if the request fails.
                self._is_empty = False
                self._coordinator.commit_offsets(self.producer, group, offsets)

    def commit(self) -> None:
        """Wait until all batches are acknowledged, then commit. Readers see the whole transaction a moment later.

        Kafka answers before it writes the markers: see `wait_until_visible`. If the response never arrives, it is unknown whether
        the transaction was committed. The group's offsets show the outcome after the next `init`.
        """
        self._check(is_begun=True)
        self._settle()
        with self._noting():
            assert self._coordinator is not None
            if not self._is_empty:
                self._coordinator.end(self.producer, is_commit=True)
                self._is_committing = True
        self._is_begun = False
        self._is_empty = True
        self._pipeline.admitted.clear()

    def wait_until_visible(self) -> None:
        """Wait until read_committed readers see the last committed transaction in all its partitions."""
        self._check(is_begun=False)
        if self._is_committing:
            with self._noting():
                assert self._coordinator is not None
                self._coordinator.wait_until_visible(self.producer)
            self._is_committing = False

    def leave_open(self) -> Producer:
        """Wait until all batches are acknowledged, and leave the transaction open. Return the producer id and epoch with which
        another process can end the transaction. This producer then needs a new `init`.
        """
        self._check(is_begun=True)
        self._settle()
        left = self.producer
        self._forget()
        self._pipeline.producer = NO_PRODUCER
        return left

    def abort(self) -> None:
        """Abort the transaction, so that read_committed readers see none of its records, and clear errors.

        Sends nothing if there is no transaction, or if this producer was fenced: its successor has ended the transaction.
        """
        if self._coordinator is None or not self._is_begun or isinstance(self._failure, ProducerFencedError):
            if self._coordinator is None:
                # The sequences are uncertain: init() gets a new producer id.
                self._pipeline.producer = NO_PRODUCER
            self._forget()
            return
        is_clean = self._failure is None
        if is_clean:
            # Unsent batches have no sequence yet. The others can usually be waited for.
            self._pipeline.drop_unsent()
            try:
                self._settle()
            except TidelogError:
                is_clean = False
        is_empty = self._is_empty
        self._forget()
        if self._failure is not None:
            return
        with self._noting():
            if is_clean and not is_empty:
                self._coordinator.end(self.producer, is_commit=False)
            elif not is_clean:
                # The state is unknown: the request may not have reached the coordinator, or a commit may be decided.
                with contextlib.suppress(InvalidTxnStateError):
                    self._coordinator.end(self.producer, is_commit=False)
                self._pipeline.renew(self._coordinator.init(self._timeout_ms, self.producer))

    def close(self) -> None:
        """Abort an open transaction, if brokers can be reached, and release all connections."""
        if self._is_begun and not isinstance(self._failure, BrokerUnreachableError):
            with contextlib.suppress(TidelogError):
                self.abort()
        self._forget()
        self._pipeline.producer = NO_PRODUCER

    # --- State ---

    def _check(self, *, is_begun: bool | None) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self.producer is NO_PRODUCER:
            raise InvalidArgumentError("the appender has no producer id: call init() first")
        if is_begun is not None and is_begun != self._is_begun:
            raise InvalidArgumentError(
                f"{'no transaction is' if is_begun else 'a transaction is already'} open for {self._transactional_id!r}",
                expected="begin() first" if is_begun else None,
            )

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep the first error, so that later calls raise it again."""
        try:
            yield
        except TidelogError as error:
            self._failure = error
            raise

    def _forget(self) -> None:
        """Drop batches, the transaction, and the error; but a fenced producer stays fenced until `init`."""
        self._pipeline.forget()
        self._order.clear()
        self._is_begun = self._is_committing = False
        self._is_empty = True
        if not isinstance(self._failure, ProducerFencedError):
            self._failure = None

    def _settle(self) -> None:
        """Wait until no batch is waiting or in flight."""
        with self._noting():
            while not self._pipeline.is_settled:
                self._admit()
                self._pipeline.send()
                self._pipeline.wait()

    def _admit(self) -> None:
        """Add the new partitions of waiting batches to the transaction."""
        new = self._pipeline.to_be_admitted
        if new:
            assert self._coordinator is not None
            self._is_empty = False
            self._coordinator.add_partitions(self.producer, new)
            self._pipeline.admitted.update(new)
