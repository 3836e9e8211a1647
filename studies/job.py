"""The studies' Spark job: each case of each study is a task, and the measurements become chapters.

| column | |
|---|---|
| study, part, case | the case |
| subject, metric | the thing measured, and the quantity |
| value, unit, text | a number with its unit, or a text |
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
"""The columns of the summary. A study's seconds are summed over its cases."""


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
    """Run the named studies, all of them by default, and return their measurements and chapters.

    Args:
        spark: the session to run in. Its workers need the packages of `tidelog[spark]`, not those of the report.
        names: names from `studies.catalogue`.
        scale: the amount of generated data; 1 is the report's size.
        progress: called with the number of finished cases.

    Raises:
        InvalidArgumentError: a study is unknown, or the scale is not above 0.
    """
    return run(spark, [study(name) for name in dict.fromkeys(STUDIES if names is None else names)], scale, progress)


def run(
    spark: SparkSession, studies: Sequence[Study], scale: float = 1.0, progress: Progress | None = None
) -> tuple[JobResult, list[Chapter]]:
    """Run the given studies, from the catalogue or not; see `run_studies`."""
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
    """Silence the engine's warnings (a clock set back, a limit above a segment's age): studies cause them on purpose."""
    logger = logging.getLogger("tidelog")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _plain(one: Measurement) -> Measurement:
    """Return a measurement with a Python float as its value, as a DataFrame's column requires."""
    return one if one.value is None else one._replace(value=float(one.value))
