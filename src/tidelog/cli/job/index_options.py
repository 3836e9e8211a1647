"""Shared by the index jobs: DIR [TOPIC], --partition, --interval, and the lines that report faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.cli.client_options import Decorated
from tidelog.cli.index_options import interval_option
from tidelog.cli.options import directory_argument, optional_topic
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, one_line

if TYPE_CHECKING:
    from tidelog.spark.jobs.result import JobResult

FINDING_COLUMNS = ("topic", "partition", "path", "entry", "position", "what", "found", "expected")


def index_arguments(function: Decorated) -> Decorated:
    """Add DIR, TOPIC, --partition and --interval, like those of `tidelog index`."""
    return directory_argument(optional_topic(interval_option(function)))


def finding_lines(result: JobResult, *, as_json: bool) -> Iterator[str]:
    """Yield a line for each fault, as for `tidelog index`; notes go to stderr, except with --json."""
    from tidelog.check.finding import Finding

    for row in result.rows.where("kind in ('fault', 'note')").select("kind", *FINDING_COLUMNS).toLocalIterator():
        kind, *values = row
        if as_json:
            yield json_line({"type": kind, **dict(zip(FINDING_COLUMNS, values, strict=True))})
            continue
        finding = Finding(*(row[name] for name in ("path", "what", "entry", "position", "found", "expected")))
        if kind == "fault":
            yield one_line(str(finding))
        else:
            notices.note(str(finding))
