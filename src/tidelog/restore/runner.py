"""Runs the work on partitions: on threads of this process, or on Spark's workers (`tidelog.spark.jobs.backup`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

WRITTEN_AT_ONCE = 8
"""The number of partitions that are written at a time. Mostly they wait for brokers or for the disk. Each has a chunk of 1 MiB
that was read and, in a cluster, at most five batches that were sent and 1 MiB of batches that wait.
"""
COMPARED_AT_ONCE = 4
"""The number of partitions that are read back at a time. Each has at most 32 MiB of columns and the chunks behind them."""


class Runner(Protocol):
    """Calls a function for each task and returns the results, in order. In this process, `threads` calls run at a time."""

    def __call__(self, work: Callable[[Task], Result], tasks: Sequence[Task], threads: int, /) -> Iterable[Result]: ...


def on_threads(work: Callable[[Task], Result], tasks: Sequence[Task], threads: int, /) -> Iterable[Result]:
    """Call `work` for each task on a few threads, and return the results in order. Raises what `work` raises."""
    with ThreadPoolExecutor(threads, "tidelog-restore") as pool:
        yield from pool.map(work, tasks)
