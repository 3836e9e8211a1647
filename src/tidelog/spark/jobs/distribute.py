"""Runs tasks on Spark's workers, one Spark partition per task, returns their rows, and raises one clear error if a task fails.

`run_tasks` returns rows to the driver; `run_arrow_tasks` leaves Arrow batches on the workers, as a DataFrame, for results that
are too large for one process.

A worker's exception would arrive as a page of Java and Python traces. So a TidelogError is returned as a value and raised again
on the driver; all other tasks finish first. Any other exception is a bug and keeps its trace. Log records of workers on
`logging.getLogger("tidelog.<area>")` (a torn tail, a damaged index) are logged again on the driver.
"""

from __future__ import annotations

import logging
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from tidelog.errors import TidelogError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
Row = tuple[Any, ...]

POLL_SECONDS = 0.2
CANCEL_SECONDS = 5.0
"""How long a process that has received Ctrl-C or a termination signal waits for Java to cancel tasks."""


class Progress(Protocol):
    """Called from time to time with the number of completed tasks, on a separate thread."""

    def __call__(self, done: int, total: int, /) -> object: ...


def run_tasks(
    spark: SparkSession,
    what: str,
    tasks: Sequence[Task],
    work: Callable[[Task], Iterable[Row]],
    progress: Progress | None = None,
) -> list[Row]:
    """Call `work` for each task on Spark's workers. Return all rows, in the order of the tasks.

    Tasks, `work` and rows are pickled. `what` is the job's description in Spark's UI. The largest tasks should come first,
    because a free worker takes the next task. If tasks failed with a TidelogError, raises the error of the first of them, in the
    order of the tasks.
    """
    if not tasks:
        return []
    context = spark.sparkContext

    def guarded(task: Task) -> list[_Outcome]:
        with _Listener() as listener:
            try:
                return [_Outcome(None, list(work(task)), listener.logged)]
            except TidelogError as error:
                return [_Outcome(error, [], listener.logged)]

    with _Watch(context, what, len(tasks), progress):
        outcomes = context.parallelize(tasks, len(tasks)).flatMap(guarded).collect()
    for outcome in outcomes:
        for area, level, message in outcome.logged:
            logging.getLogger(area).log(level, "%s", message)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [row for outcome in outcomes for row in outcome.rows]


class _Outcome(NamedTuple):
    """The rows or the error of one task, and the task's log records."""

    error: TidelogError | None
    rows: list[Row]
    logged: list[tuple[str, int, str]]


class _Listener(logging.Handler):
    """Collects the log records of one task, on a worker."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.logged: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.logged.append((record.name, record.levelno, record.getMessage()))

    def __enter__(self) -> _Listener:
        logging.getLogger("tidelog").addHandler(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        logging.getLogger("tidelog").removeHandler(self)


@contextmanager
def run_arrow_tasks(
    spark: SparkSession,
    what: str,
    tasks: Sequence[Task],
    work: Callable[[Task], Iterable[pa.RecordBatch]],
    schema: pa.Schema,
    progress: Progress | None = None,
) -> Iterator[DataFrame]:
    """Call `work` for each task on Spark's workers. Within the context, provide all Arrow batches, which have the schema
    `schema`, as a DataFrame.

    All tasks are complete before the block begins. Spark keeps their rows, in any order, until the block ends. If tasks failed
    with a TidelogError, raises the error of the first of them, in the order of the tasks.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import BinaryType, StructField, StructType

    fault_field = pa.field("fault", pa.binary())

    def guarded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            for pickled in given.column("task"):
                number, task = pickle.loads(pickled.as_py())
                try:
                    for batch in work(task):
                        yield batch.append_column(fault_field, pa.nulls(len(batch), pa.binary()))
                except TidelogError as error:
                    fault = pa.array([pickle.dumps((number, error))], pa.binary())
                    nothing = [pa.nulls(1, field.type) for field in schema]
                    yield pa.RecordBatch.from_arrays([*nothing, fault], schema=schema.append(fault_field))

    context = spark.sparkContext
    rows = [(pickle.dumps(numbered),) for numbered in enumerate(tasks)]
    given = spark.createDataFrame(context.parallelize(rows, max(1, len(rows))), "task binary")
    columns = StructType([*from_arrow_schema(schema).fields, StructField("fault", BinaryType())])
    found = given.mapInArrow(guarded, columns).persist()
    try:
        with _Watch(context, what, len(tasks), progress):
            rows_with_fault = found.where("fault IS NOT NULL").collect()
        faults = sorted((pickle.loads(row.fault) for row in rows_with_fault), key=lambda fault: fault[0])
        if faults:
            error: TidelogError = faults[0][1]
            raise error
        yield found.drop("fault")
    finally:
        found.unpersist()


@contextmanager
def watch(spark: SparkSession, what: str, progress: Progress | None = None) -> Iterator[None]:
    """Set `what` as the description of the Spark jobs that are started within the context.

    The progress of their tasks is reported to `progress`, for the stages that are known so far.
    """
    with _Watch(spark.sparkContext, what, None, progress):
        yield


class _Watch:
    """Names the Spark job, and polls for the number of complete tasks. Without `total`, the total is the number of tasks that
    Spark has planned so far.
    """

    def __init__(self, context: SparkContext, what: str, total: int | None, progress: Progress | None) -> None:
        self._context = context
        self._group = f"tidelog-{uuid4()}"
        self._what = what
        self._total = total
        self._planned = 0
        self._progress = progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="tidelog-job-progress", daemon=True)
        self._terminate: Any = None
        self._termination: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> _Watch:
        terminate = signal.getsignal(signal.SIGTERM)
        if callable(terminate) and threading.current_thread() is threading.main_thread():
            self._terminate = terminate
            signal.signal(signal.SIGTERM, self._end)
        self._context.setJobGroup(self._group, self._what, interruptOnCancel=True)
        if self._progress is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._terminate is not None:
            signal.signal(signal.SIGTERM, self._terminate)
        if self._termination is not None:
            # PySpark may have replaced the handler in the meantime.
            self._terminate(*self._termination)
        if isinstance(error, KeyboardInterrupt):
            self._context.cancelJobGroup(self._group)
        if self._progress is not None:
            self._thread.join()
            if error is None:
                total = self._planned if self._total is None else self._total
                self._progress(total, total)
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
        self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    def _end(self, number: int, frame: FrameType | None) -> None:
        """On SIGTERM, cancel the tasks before the previous handler raises. PySpark does the same for Ctrl-C.

        This thread waits for the job's result, and any further call to Java on it would wait as well, so another thread cancels
        the tasks.
        """
        self._termination = number, frame
        canceller = threading.Thread(target=self._context.cancelJobGroup, args=(self._group,), daemon=True)
        canceller.start()
        canceller.join(CANCEL_SECONDS)
        self._terminate(number, frame)

    def _poll(self) -> None:
        assert self._progress is not None
        tracker = self._context.statusTracker()
        while not self._done.wait(POLL_SECONDS):
            done = planned = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    stage_info = tracker.getStageInfo(stage)
                    done += stage_info.numCompletedTasks if stage_info is not None else 0
                    planned += stage_info.numTasks if stage_info is not None else 0
            self._planned = planned
            self._progress(done, planned if self._total is None else self._total)
