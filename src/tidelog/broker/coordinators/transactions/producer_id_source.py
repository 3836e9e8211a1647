"""Sources of producer ids: the folder's own metadata log, or blocks from the cluster's controller (KIP-730)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TypeAlias

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.errors import StorageError
from tidelog.storage.producers.producer_ids import ProducerIds

logger = logging.getLogger("tidelog.broker")

PREFETCH_AT = 10
"""The next block is requested when a tenth of a block is left, as in Kafka. This is the divisor."""


class ClusterProducerIds:
    """Producer ids from blocks that `plane` requests ahead of time, so that producers need not wait. Use only on the event loop's
    thread.
    """

    def __init__(self, plane: MetadataPlane) -> None:
        self._plane = plane
        self._log = RetryLog(logger)
        self._blocks: deque[range] = deque()
        self._low = 0
        """The next block is requested when only this many ids are left."""
        self._reserving: asyncio.Task[None] | None = None

    def has(self, count: int) -> bool:
        return sum(map(len, self._blocks)) >= count

    def next_id(self) -> int:
        if not self._blocks:
            raise StorageError("the controller has not assigned the next block of producer ids yet")
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        if not self.has(self._low + 1):
            self._begin()
        return block[0]

    async def reserve(self) -> None:
        """Request a block. Callers that wait at the same time share it. Raises what `MetadataPlane.producer_ids` raises."""
        # If one caller gives up, the request continues for the others.
        await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Task[None]:
        if self._reserving is None:
            self._reserving = asyncio.get_running_loop().create_task(self._reserve())
            self._reserving.add_done_callback(self._over)
        return self._reserving

    def _over(self, task: asyncio.Task[None]) -> None:
        self._reserving = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.failed("could not get producer ids from the controller: %s", error)

    async def _reserve(self) -> None:
        block = await self._plane.producer_ids()
        self._blocks.append(block)
        self._low = len(block) // PREFETCH_AT


ProducerIdSource: TypeAlias = ProducerIds | ClusterProducerIds
