"""Mirrors without Spark: the same rounds, their tasks done here one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tidelog.spark.jobs import mirror as job
from tidelog.spark.jobs.mirror import MirrorOptions, mirror
from tidelog.spark.jobs.result import JobResult


class NoSpark:
    """Makes rows of what is given, and nothing else."""

    def createDataFrame(self, values: list[tuple[Any, ...]], schema: str) -> list[dict[str, Any]]:  # noqa: N802
        names = [column.split()[0] for column in schema.split(", ")]
        return [dict(zip(names, row, strict=True)) for row in values]


def run_here(
    spark: Any, what: str, tasks: Sequence[Any], work: Callable[[Any], Iterable[Any]], progress: Any = None
) -> list[Any]:
    return [row for task in tasks for row in work(task)]


def mirror_here(patch: pytest.MonkeyPatch, options: MirrorOptions, **rest: Any) -> JobResult:
    patch.setattr(job, "run_tasks", run_here)
    return mirror(NoSpark(), options, **rest)  # type: ignore[arg-type]
