"""Tasks done by Spark's workers: one partition each, their rows brought back as a DataFrame, one clear error if a task fails.

What a worker raises would arrive as a page of Java's and Python's traces. A TidelogError is therefore carried back as a value and
raised again here, as itself; the tasks beside it are let finish. Anything else is a bug and keeps its trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import uuid4

from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Row = tuple[Any, ...]

POLL_SECONDS = 0.2


class Progress(Protocol):
    """Hears how many of all tasks are done, now and then, on a thread of its own."""

    def __call__(self, done: int, total: int, /) -> object: ...


def run_tasks(
    spark: SparkSession,
    what: str,
    tasks: Sequence[Task],
    work: Callable[[Task], Iterable[Row]],
    progress: Progress | None = None,
) -> list[Row]:
    """Do `work` for each task on Spark's workers, and return all rows, in the order of the tasks.

    Tasks, `work` and rows are pickled. `what` is the job's description in Spark's own page. The largest tasks should come first:
    a worker that becomes free takes the next.

    Raises the TidelogError of the first task, by order, that failed with one.
    """
    if not tasks:
        return []
    context = spark.sparkContext

    def guarded(task: Task) -> list[tuple[TidelogError | None, list[Row]]]:
        try:
            return [(None, list(work(task)))]
        except TidelogError as error:
            return [(error, [])]

    with _Watch(context, what, len(tasks), progress):
        outcomes = context.parallelize(tasks, len(tasks)).flatMap(guarded).collect()
    for error, _ in outcomes:
        if error is not None:
            raise error
    return [row for _, rows in outcomes for row in rows]


class _Watch:
    """Names the Spark job, and polls how many of its tasks are done."""

    def __init__(self, context: SparkContext, what: str, total: int, progress: Progress | None) -> None:
        self._context = context
        self._group = f"tidelog-{uuid4()}"
        self._what = what
        self._total = total
        self._progress = progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="tidelog-job-progress", daemon=True)

    def __enter__(self) -> _Watch:
        self._context.setJobGroup(self._group, self._what, interruptOnCancel=True)
        if self._progress is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if isinstance(error, KeyboardInterrupt):
            self._context.cancelJobGroup(self._group)
        if self._progress is not None:
            self._thread.join()
            if error is None:
                self._progress(self._total, self._total)
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
        self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    def _poll(self) -> None:
        assert self._progress is not None
        tracker = self._context.statusTracker()
        while not self._done.wait(POLL_SECONDS):
            done = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    stage_info = tracker.getStageInfo(stage)
                    done += stage_info.numCompletedTasks if stage_info is not None else 0
            self._progress(done, self._total)
