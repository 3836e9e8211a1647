"""Calls a function for each item on several threads, and yields the results in the items' order. Use it for work that releases
the GIL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def ordered_map(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> Iterator[_Result]:
    """Yield `work(item)` for each item, in order. Up to `threads` calls run at a time. If a call fails, its exception is raised
    in place of its result.

    Items are taken one by one as threads become free; at most `threads` results are buffered. Closing the iterator early waits
    for the running calls.
    """
    if threads <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads, "tidelog") as executor:
        waiting: deque[Future[_Result]] = deque()
        try:
            for item in items:
                if len(waiting) == threads:
                    yield waiting.popleft().result()
                waiting.append(executor.submit(work, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
