"""The job `bootstrap`: takes a cut, or loads the existing cut, and reads the history before it.

The rows are the history, with the columns of `spark.read.format("tidelog")`, including headers. The summary has a line for each
partition: the beginning of its history, the cut, and the number of offsets in between.

The cut is stored in a file before anything is read. A job that failed or was killed loads the cut from that file and reads the
same history again. A stream that starts from the cut begins where the history ends (`tidelog.spark.bootstrap`).
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
    """Return the cut stored in a file. If the file does not exist, take a cut and save it to that file. Also return whether the
    cut is new.

    Raises InvalidArgumentError if the file has a cut of different topics or a different source, and what `take_cut` and
    `Cut.load` raise.
    """
    if not Path(path).exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteLogWarning)  # The job reports missing records itself.
            cut = take_cut(source, topics, start, clock=clock)
        if cut.save_new(path):
            return cut, True
        # In the meantime another job has saved a cut. Use that cut; otherwise that job's history would not end where the stream
        # begins.
    cut = Cut.load(path)
    place = settled(source)
    if set(cut.topics) != set(topics) or cut.source != place:
        raise InvalidArgumentError(
            "the file has a different cut", path=path, found=cut, expected=f"{', '.join(topics)} of {place}"
        )
    return replace(cut, source=place), False  # The file has the brokers' addresses, but not the client configuration.


def bootstrap(spark: SparkSession, cut: Cut, *, source: str | None = None) -> JobResult:
    """Return a cut's history as a job result. `source` is a different source with the same offsets. Records are read only when
    the result's rows are read.

    Raises what `Cut.history` raises.
    """
    rows = cut.history(spark, source=source, includeHeaders="true")
    lines = [(*key, cut.starts[key], end, end - cut.starts[key]) for key, end in sorted(cut.cuts.items())]
    return JobResult(rows, Summary(COLUMNS, tuple(lines)), missing=logged_missing(missing_of_cut(cut, source)))
