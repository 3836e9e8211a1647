"""Sends ISR changes to the controller: AlterPartition (KIP-497; broker epochs, KIP-903).

One request is in flight at a time. It contains all proposals made since the last request, at most one per partition. A request
that fails as a whole is retried until it succeeds, without proposals that were dropped in the meantime. Each partition gets its
own result.

Use only on the event loop's thread. See Kafka's AlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from time import monotonic

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.replicas.partition import CommittedIsr, IsrChange, Partition
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode, code_name, known_code
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResult,
    TopicData,
)

logger = logging.getLogger("tidelog.broker")

RETRY_S = 0.05
"""The wait, in seconds, after a request that failed as a whole or a proposal that must be retried."""

AT_ONCE = 1000
"""The most proposals in one request."""

_RECOVERED = 0
"""The leader recovery state of a leader that has taken over the partition after any election (KIP-704)."""


class IsrChanges:
    """Sends ISR proposals. `advanced` is called with each partition whose high watermark has moved because of a result."""

    def __init__(self, plane: MetadataPlane, advanced: Callable[[Partition], object]) -> None:
        self._plane = plane
        self._advanced = advanced
        self._unsent: dict[TopicPartition, tuple[Partition, IsrChange, uuid.UUID]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._log = RetryLog(logger)
        self._refusals = RetryLog(logger)

    def propose(self, partition: Partition, change: IsrChange, topic_id: uuid.UUID) -> None:
        """Queue a proposal. It replaces an unsent proposal of the same partition."""
        if self._is_stopped:
            return
        self._unsent[change.key] = partition, change, topic_id
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="tidelog-isr-changes")

    async def stop(self) -> None:
        self._is_stopped = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while self._unsent:
            sent = {}
            for key in list(self._unsent)[:AT_ONCE]:
                partition, change, topic_id = self._unsent.pop(key)
                if partition.pending is change:
                    sent[key] = partition, change, topic_id
            if sent and not await self._send(sent):
                await asyncio.sleep(RETRY_S)
        self._task = None

    async def _send(self, sent: dict[TopicPartition, tuple[Partition, IsrChange, uuid.UUID]]) -> bool:
        """Send proposals in one request. Return False if any must be retried."""
        try:
            response: AlterPartitionResponse = await self._plane.call(self._request(sent))
            code, why = known_code(response.error_code), ""
        except TidelogError as error:
            response, code, why = AlterPartitionResponse(), ErrorCode.NETWORK_EXCEPTION, str(error)
        except Exception:
            logger.exception("cannot send the proposed in-sync replicas to the controller")
            response, code = AlterPartitionResponse(), ErrorCode.UNKNOWN_SERVER_ERROR
        if code:
            self._log.failed("the controller has not changed the in-sync replicas, retrying: %s", why or code.name)
        else:
            self._log.works("the controller accepts changes of in-sync replicas again")
        results = {
            (topic.topic_id, one.partition_index): one for topic in response.topics for one in topic.partitions if not code
        }
        has_all = True
        for key, (partition, change, topic_id) in sent.items():
            result = results.get((topic_id, key.partition))
            if result is not None:
                self._take(partition, change, result)
            elif partition.pending is change:
                self._unsent.setdefault(key, (partition, change, topic_id))
                has_all = False
        return has_all and not any(key in self._unsent and self._unsent[key][1] is sent[key][1] for key in sent)

    def _request(self, sent: dict[TopicPartition, tuple[Partition, IsrChange, uuid.UUID]]) -> AlterPartitionRequest:
        topics: dict[uuid.UUID, TopicData] = {}
        for key, (_, change, topic_id) in sent.items():
            topic = topics.setdefault(topic_id, TopicData(key.topic, topic_id))
            topic.partitions.append(
                PartitionData(
                    key.partition,
                    change.leader_epoch,
                    [broker_id for broker_id, _ in change.isr],
                    [BrokerState(broker_id, self._epoch(broker_id, epoch)) for broker_id, epoch in change.isr],
                    _RECOVERED,
                    change.partition_epoch,
                )
            )
        return AlterPartitionRequest(self._plane.node_id, self._plane.broker_epoch, list(topics.values()))

    def _epoch(self, broker_id: int, epoch: int) -> int:
        return self._plane.broker_epoch if broker_id == self._plane.node_id else epoch

    def _take(self, partition: Partition, change: IsrChange, result: PartitionDataResult) -> None:
        answer: CommittedIsr | ErrorCode = known_code(result.error_code)
        if answer is ErrorCode.NONE:
            answer = CommittedIsr(result.leader_epoch, result.partition_epoch, tuple(result.isr))
            if partition.pending is change:
                logger.info(
                    "%s-%d: the in-sync replicas are %s in partition epoch %d", *change.key, result.isr, result.partition_epoch
                )
        else:
            isr = [one for one, _ in change.isr]
            self._refusals.failed(
                "%s-%d: the controller refused the in-sync replicas %s: %s",
                *change.key,
                isr,
                code_name(result.error_code),
                level=logging.INFO,
            )
        if partition.isr_answered(change, answer, monotonic()):
            self._advanced(partition)
