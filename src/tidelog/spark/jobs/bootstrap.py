"""The job `bootstrap`: takes a cut, or finds the existing one, and reads the history before it.

The rows are the history, with the columns of `spark.read.format("tidelog")`, including headers. The summary has a line for each
partition: the beginning of its history, the cut, and the number of offsets in between.

The cut is stored in a file before anything is read: a job that failed or was killed finds it there and reads the same history
again, and a stream that starts with it begins where the history ends (`tidelog.spark.bootstrap`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import IncompleteLogWarning, InvalidArgumentError
from tidelog.sources.opening import settled
from tidelog.spark.bootstrap import Cut, missing_of_cut, take_cut
from tidelog.spark.jobs.result import JobResult, Summary, logged_missing
from tidelog.times import Time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.clock import Clock

__all__ = ["bootstrap", "cut_at"]

COLUMNS = ("topic", "partition", "from_offset", "cut_offset", "offsets")


def cut_at(
    source: str, topics: Sequence[str], start: Time | None, path: str | os.PathLike[str], *, clock: Clock | None = None
) -> tuple[Cut, bool]:
    """Return the cut stored in a file; if the file does not exist, take a cut and save it there. Also return whether the cut is
    new.

    Raises InvalidArgumentError if the file has a cut of other topics or another source, and what `take_cut` and `Cut.load` raise.
    """
    if not Path(path).exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteLogWarning)  # The job reports missing records itself.
            cut = take_cut(source, topics, start, clock=clock)
        if cut.save_new(path):
            return cut, True
        # Another job has saved a cut meanwhile. Use that one; otherwise that job's history would not end where the stream begins.
    cut = Cut.load(path)
    place = settled(source)
    if set(cut.topics) != set(topics) or cut.source != place:
        raise InvalidArgumentError("the file has another cut", path=path, found=cut, expected=f"{', '.join(topics)} of {place}")
    return replace(cut, source=place), False  # A file has the brokers' addresses, not the connection's configuration.


def bootstrap(spark: SparkSession, cut: Cut, *, source: str | None = None) -> JobResult:
    """Return a cut's history as a job result; `source` is another source with the same offsets. Records are read only when the
    rows are.

    Raises as `Cut.history`.
    """
    rows = cut.history(spark, source=source, includeHeaders="true")
    lines = [(*key, cut.starts[key], end, end - cut.starts[key]) for key, end in sorted(cut.cuts.items())]
    return JobResult(rows, Summary(COLUMNS, tuple(lines)), missing=logged_missing(missing_of_cut(cut, source)))
