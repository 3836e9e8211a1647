"""Who does the work on partitions: the threads of this process, or Spark's workers (`tidelog.spark.jobs.backup`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

PARALLEL = 4
"""The number of threads."""


class Runner(Protocol):
    """Calls a function for each task and returns the results, in order."""

    def __call__(self, work: Callable[[Task], Result], tasks: Sequence[Task], /) -> Iterable[Result]: ...


def on_threads(work: Callable[[Task], Result], tasks: Sequence[Task], /) -> Iterable[Result]:
    """Call `work` on a few threads. Raises what it raises."""
    with ThreadPoolExecutor(PARALLEL, "tidelog-restore") as pool:
        yield from pool.map(work, tasks)
