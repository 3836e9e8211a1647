"""Reports to the controllers which log directory holds this broker's replicas: AssignReplicasToDirs (KIP-858; Kafka's
AssignmentsManager).

The metadata assigns each replica to a log directory by the directory's id. A folder that was formatted again, e.g. on a new disk,
has a new id. The controllers never elect a replica whose directory is not registered by its broker. Therefore a replica is
reassigned if the metadata names a directory other than the one that holds it.

| the metadata assigns a replica | what happens |
|---|---|
| to this broker's folder | nothing is sent |
| to another directory, a lost one, or none | an assignment is sent once the replica's log is open |
| while `metadata.version` is below 3.7-IV2 | the assignment waits, because the controllers refuse it |

A request has at most `AT_ONCE` replicas, and only one request is in flight. A failed request, or a failed replica in it, is sent
again after `wait_s`. Each request leaves out replicas that were deleted, moved to other brokers, or assigned in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TypeAlias

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.errors import TidelogError
from tidelog.formats.partition_metadata import format_topic_id
from tidelog.metadata.directory_ids import directory_of
from tidelog.metadata.records import PartitionRecord
from tidelog.metadata.versions import DIRECTORIES_LEVEL
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

logger = logging.getLogger("tidelog.broker")

AT_ONCE = 1000
"""Replicas per request. Kafka's brokers send up to 2,250; that many would block the loop too long here."""

FIRST_WAIT_S = 0.1
MAX_WAIT_S = 10.0
_JITTER = 0.02

LASTING = 5
"""Failures are logged once this many have occurred in a row: a single failure may only mean that a topic was deleted."""

Replica: TypeAlias = tuple[uuid.UUID, int]
"""Topic id and partition."""


def wait_s(failures: int, waiting: int) -> float:
    """Return the delay in seconds before the next request, given the number of failures in a row and of replicas to assign.

    | failures | replicas | |
    |---|---|---|
    | 0 | at most `AT_ONCE` | 0.1 s, to batch replicas that follow |
    | 0 | more | 0 |
    | n | any | 0.1 s * 2 ** n, at most 10 s |
    """
    if not failures:
        return 0 if waiting > AT_ONCE else FIRST_WAIT_S
    return min(FIRST_WAIT_S * 2.0 ** min(failures, 30), MAX_WAIT_S)


class DirectoryAssignments:
    """Keeps the assignments of one broker's replicas up to date; `run` sends them. Use only on the event loop's thread."""

    def __init__(
        self, plane: MetadataPlane, directory_id: uuid.UUID, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._plane = plane
        self._directory_id = directory_id
        self._place = f"directory.id {format_topic_id(directory_id)}"
        self._sleep = sleep
        self._waiting: dict[Replica, None] = {}
        """The replicas to assign, in order of arrival; those that failed go to the end."""
        self._sent: list[Replica] = []
        self._wake = asyncio.Event()
        self._failures = 0
        self._log = RetryLog(logger)

    @property
    def pending(self) -> int:
        """The number of replicas to assign, including those of the request in flight."""
        return len(self._waiting) + len(self._sent)

    def placed(self, topic_id: uuid.UUID, partition: PartitionRecord) -> None:
        """Note that the log of one of this broker's replicas is open. If `partition`, its current record, names a different
        directory, report the replica's directory to the controllers.
        """
        replica = topic_id, partition.partition_id
        if directory_of(partition, self._plane.node_id) == self._directory_id:
            self._waiting.pop(replica, None)
        else:
            self._waiting[replica] = None
            self._wake.set()

    def metadata_version_changed(self) -> None:
        """Check whether the controllers accept assignments now."""
        self._wake.set()

    async def run(self) -> None:
        """Send pending assignments for as long as the broker runs."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and self._plane.image.metadata_version >= DIRECTORIES_LEVEL:
                delay_s = wait_s(self._failures, len(self._waiting))
                await self._sleep(delay_s * random.uniform(1 - _JITTER, 1 + _JITTER))
                self._sent = self._next()
                if self._sent:
                    await self._send(self._sent)
                    self._sent = []

    def _next(self) -> list[Replica]:
        """Return the replicas of the next request, and drop those that no longer need an assignment."""
        found: list[Replica] = []
        for replica in list(islice(self._waiting, AT_ONCE)):
            del self._waiting[replica]
            topic_id, number = replica
            topic = self._plane.image.topics_by_id.get(topic_id)
            partition = None if topic is None else topic.partitions.get(number)
            assigned = None if partition is None else directory_of(partition, self._plane.node_id)
            if assigned is not None and assigned != self._directory_id:
                found.append(replica)
        return found

    async def _send(self, replicas: list[Replica]) -> None:
        topics: dict[uuid.UUID, TopicData] = {}
        for topic_id, number in replicas:
            topics.setdefault(topic_id, TopicData(topic_id)).partitions.append(PartitionData(number))
        directory = DirectoryData(self._directory_id, list(topics.values()))
        request = AssignReplicasToDirsRequest(self._plane.node_id, self._plane.broker_epoch, [directory])
        try:
            response: AssignReplicasToDirsResponse = await self._plane.call(request)
        except TidelogError as error:
            self._failed(replicas, str(error))
            return
        if response.error_code:
            self._failed(replicas, f"the controller answers {code_name(response.error_code)}")
            return
        done = {
            (topic.topic_id, one.partition_index): one.error_code
            for directory_result in response.directories
            for topic in directory_result.topics
            for one in topic.partitions
        }
        failed = [replica for replica in replicas if done.get(replica) != ErrorCode.NONE]
        if len(failed) < len(replicas):
            self._failures = 0
            logger.info("%d replicas were assigned to %s", len(replicas) - len(failed), self._place)
        if failed:
            topic_id, number = failed[0]
            code = done.get(failed[0])
            said = "no result" if code is None else code_name(code)
            self._failed(failed, f"the controller answers {said} for partition {number} of topic id {format_topic_id(topic_id)}")

    def _failed(self, replicas: list[Replica], reason: str) -> None:
        for replica in replicas:
            self._waiting.setdefault(replica)
        self._failures += 1
        if self._failures < LASTING:
            return
        self._log.failed("%d replicas cannot be assigned to %s yet: %s", len(self._waiting), self._place, reason)
