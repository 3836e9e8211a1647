"""Where producer ids come from: the folder's own metadata log, or blocks that the cluster's controller hands out (KIP-730)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tidelog.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.cluster.metadata_plane import MetadataPlane


class ProducerIdSource(Protocol):
    """Hands out ids, none of which was handed out before."""

    def has(self, count: int) -> bool:
        """Whether so many ids can be handed out without waiting."""

    def next_id(self) -> int:
        """Return one. Raises StorageError if there is none."""


class ClusterProducerIds:
    """Ids of the blocks that `plane` gets. Belongs to the loop's thread."""

    def __init__(self, plane: MetadataPlane) -> None:
        self._plane = plane
        self._ids: list[int] = []
        """Those at hand, the next one last."""
        self._reserving: asyncio.Future[None] | None = None

    def has(self, count: int) -> bool:
        """Whether so many ids are at hand."""
        return len(self._ids) >= count

    def next_id(self) -> int:
        """Return one that is at hand."""
        if not self._ids:
            raise StorageError("the controller has not given the next block of producer ids")
        return self._ids.pop()

    async def reserve(self) -> None:
        """Get a block, one for all who ask meanwhile. Raises as `MetadataPlane.call`."""
        if self._reserving is None:
            self._reserving = asyncio.ensure_future(self._reserve())
        # Who gives up does not end it for the others.
        await asyncio.shield(self._reserving)

    async def _reserve(self) -> None:
        try:
            block = await self._plane.producer_ids()
            self._ids[:0] = reversed(block)
        finally:
            self._reserving = None
