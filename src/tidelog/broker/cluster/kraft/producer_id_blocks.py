"""Ids for idempotent and transactional producers, in blocks that the controller hands out (KIP-730).

A block has 1000 ids in Kafka. The next one is asked for when nine tenths of a block are used, so that no producer waits for the
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidelog.errors import TidelogError

logger = logging.getLogger("tidelog.broker")

PREFETCH_SHARE = 0.9


class ProducerIdBlocks:
    """Hands out ids one by one. `allocate` asks the controller for a block. Belongs to the loop's thread."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._used = 0
        self._next: asyncio.Task[range] | None = None

    async def next_id(self) -> int:
        """Return an id that nobody else has. Raises what `allocate` raises; then no id is lost."""
        while True:
            producer_id = self.next_id_at_hand()
            if producer_id is not None:
                return producer_id
            # Others may wait for the same block: who gives up does not end it.
            await asyncio.shield(self._ask())

    def next_id_at_hand(self) -> int | None:
        """Return an id, None while the next block is on its way."""
        if self._used == len(self._block):
            task = self._ask()
            if not task.done() or task.cancelled() or task.exception() is not None:
                return None
            self._next, self._block, self._used = None, task.result(), 0
        if self._used >= len(self._block):
            return None
        producer_id = self._block[self._used]
        self._used += 1
        if self._used >= PREFETCH_SHARE * len(self._block):
            self._ask()
        return producer_id

    def close(self) -> None:
        """Ask for no more. Idempotent."""
        if self._next is not None:
            self._next.cancel()

    def _ask(self) -> asyncio.Task[range]:
        task = self._next
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._next = asyncio.ensure_future(self._allocated())
        return task

    async def _allocated(self) -> range:
        try:
            return await self._allocate()
        except TidelogError as error:
            logger.warning("no producer ids from the controller: %s", error)
            raise
