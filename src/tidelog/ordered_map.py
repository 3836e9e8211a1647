"""Work on several things at a time, on threads, with the answers in the order of the things: for work that releases the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def ordered_map(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> Iterator[_Result]:
    """Yield `work(item)` for each item, up to `threads` at a time. An exception of one of them is raised in its turn.

    Items are taken one by one as there is room; no more than `threads` answers wait. Closing the iterator early waits for
    what has begun.
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
