"""Slices of the loop for replica fetchers: one slice of a few milliseconds per turn of the loop.

If ten leaders answer with 10 MB each, their responses are processed in slices, one after the other, with all other work in
between. So ten leaders block a turn of the loop no longer than one leader does. Client requests have their own slices
(`requests.slices`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter

from tidelog.broker.requests.slices import SLICE_S


class FollowerSlices:
    """Runs the fetchers' work in slices. Shared by all fetchers of a broker. Use only on the event loop's thread."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, steps: Iterator[object]) -> None:
        """Run all `steps`, as many per slice as fit. Other work may change state between two steps. Raises what the steps
        raise.
        """
        is_over = False
        while not is_over:
            async with self._lock:
                began = perf_counter()
                for _ in steps:
                    if perf_counter() - began >= SLICE_S:
                        break
                else:
                    is_over = True
            if not is_over:
                await asyncio.sleep(0)
