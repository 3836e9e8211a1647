"""Runs the work on partitions: on threads of this process, or on Spark's workers (`tidelog.spark.jobs.backup`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

PARALLEL = 4
"""The number of threads that work on partitions."""


class Runner(Protocol):
    """Calls a function for each task and returns the results, in order."""

    def __call__(self, work: Callable[[Task], Result], tasks: Sequence[Task], /) -> Iterable[Result]: ...


def on_threads(work: Callable[[Task], Result], tasks: Sequence[Task], /) -> Iterable[Result]:
    """Call `work` for each task on a few threads, and return the results in order. Raises what `work` raises."""
    with ThreadPoolExecutor(PARALLEL, "tidelog-restore") as pool:
        yield from pool.map(work, tasks)
