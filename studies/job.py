"""The studies' job: each case of each study is a task, and what all of them measured becomes chapters.

| column | |
|---|---|
| study, part, case | which case it was |
| subject, metric | of what, and what |
| value, unit, text | a number in a unit, or words |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from studies.case import SCHEMA, Case, Measurement, Measurements, Study
from studies.catalogue import STUDIES, study
from studies.chapter import Chapter, Verdict
from studies.report.verdicts import count_verdicts
from studies.work_dir import work_dir
from tidelog.errors import InvalidArgumentError
from tidelog.spark.jobs.distribute import Progress, run_tasks
from tidelog.spark.jobs.result import JobResult, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("study", "cases", "measurements", *(verdict.value for verdict in Verdict), "seconds")
"""Of the summary; the seconds of a study are those of its cases, one after the other."""


class _Task(NamedTuple):
    study: str
    case: Case


class _Measured(NamedTuple):
    study: str
    seconds: float
    measurements: list[Measurement]


def run_studies(
    spark: SparkSession,
    names: Sequence[str] | None = None,
    scale: float = 1.0,
    progress: Progress | None = None,
) -> tuple[JobResult, list[Chapter]]:
    """Run the studies of these names, all of them by default, and return what was measured and what it says.

    Args:
        spark: the session to run in; its workers need the packages of `tidelog[spark]`, not those of the report.
        names: as in `studies.catalogue`.
        scale: how much is generated and measured; 1 is the report's size.
        progress: is called with the number of cases that are done.

    Raises:
        InvalidArgumentError: no study has that name, or the scale is not above 0.
    """
    return run(spark, [study(name) for name in dict.fromkeys(STUDIES if names is None else names)], scale, progress)


def run(
    spark: SparkSession, studies: Sequence[Study], scale: float = 1.0, progress: Progress | None = None
) -> tuple[JobResult, list[Chapter]]:
    """Run studies, the catalogue's or others; see `run_studies`."""
    if not scale > 0:
        raise InvalidArgumentError("a scale is above 0", found=scale)
    by_name = {one.NAME: one for one in studies}
    tasks = [_Task(one.NAME, case) for one in studies for case in one.cases(scale)]

    def work(task: _Task) -> list[_Measured]:
        began = time.perf_counter()
        with _without_warnings(), work_dir() as folder:
            found = [_plain(one) for one in by_name[task.study].measure(task.case, folder)]
        return [_Measured(task.study, time.perf_counter() - began, found)]

    measured = [_Measured(*row) for row in run_tasks(spark, f"studies: {', '.join(by_name)}", tasks, work, progress)]
    rows: list[tuple[object, ...]] = []
    lines: list[tuple[object, ...]] = []
    chapters: list[Chapter] = []
    for name, one in by_name.items():
        own = [row for row in measured if row.study == name]
        found = Measurements(measurement for row in own for measurement in row.measurements)
        chapter = one.present(found)
        verdicts = count_verdicts(chapter)
        seconds = round(sum(row.seconds for row in own), 1)
        lines.append((name, len(own), len(found), *(verdicts[verdict] for verdict in Verdict), seconds))
        rows += [(name, *measurement) for measurement in found]
        chapters.append(chapter)
    return JobResult(spark.createDataFrame(rows, SCHEMA), Summary(COLUMNS, tuple(lines))), chapters


@contextmanager
def _without_warnings() -> Iterator[None]:
    """What the engine warns of (a clock that goes back, a limit above a segment's age) is what a study does on purpose."""
    logger = logging.getLogger("tidelog")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _plain(one: Measurement) -> Measurement:
    """Return a measurement whose value is Python's own float, which is what a DataFrame's column takes."""
    return one if one.value is None else one._replace(value=float(one.value))
