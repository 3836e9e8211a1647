"""Where producer ids come from: the folder's own metadata log, or blocks that the cluster's controller hands out (KIP-730)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.cluster.retry_log import RetryLog
from tidelog.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.cluster.metadata_plane import MetadataPlane


logger = logging.getLogger("tidelog.broker")

PREFETCH_AT = 10
"""With one in so many of a block left, the next one is asked for, as in Kafka."""


class ProducerIdSource(Protocol):
    """Hands out ids, none of which was handed out before."""

    def has(self, count: int) -> bool:
        """Whether so many ids can be handed out without waiting."""

    def next_id(self) -> int:
        """Return one. Raises StorageError if there is none."""


class ClusterProducerIds:
    """Ids of the blocks that `plane` gets, the next one ahead of time: no producer waits. Belongs to the loop's thread."""

    def __init__(self, plane: MetadataPlane) -> None:
        self._plane = plane
        self._log = RetryLog(logger)
        self._blocks: deque[range] = deque()
        self._low = 0
        """With so few ids left, the next block is asked for."""
        self._reserving: asyncio.Task[None] | None = None

    def has(self, count: int) -> bool:
        """Whether so many ids are at hand."""
        return sum(map(len, self._blocks)) >= count

    def next_id(self) -> int:
        """Return one that is at hand."""
        if not self._blocks:
            raise StorageError("the controller has not given the next block of producer ids")
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        if not self.has(self._low + 1):
            self._begin()
        return block[0]

    async def reserve(self) -> None:
        """Get a block, one for all who ask meanwhile. Raises as `MetadataPlane.call`."""
        # A caller that gives up does not end it for the others.
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
            self._log.failed("no producer ids from the controller: %s", error)

    async def _reserve(self) -> None:
        block = await self._plane.producer_ids()
        self._blocks.append(block)
        self._low = len(block) // PREFETCH_AT
