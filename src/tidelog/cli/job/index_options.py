"""What the index jobs share: DIR [TOPIC], --partition, --interval, and the lines that tell of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.cli import notices
from tidelog.cli.layout import json_line, one_line
from tidelog.cli.options import directory_argument, partition_option
from tidelog.config import INT32_MAX

if TYPE_CHECKING:
    from tidelog.spark.jobs.result import JobResult

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FINDING_COLUMNS = ("topic", "partition", "path", "entry", "position", "what", "found", "expected")


def index_arguments(function: Decorated) -> Decorated:
    """DIR, TOPIC, --partition and --interval, as `tidelog index` has them."""
    for option in (
        click.option(
            "--interval",
            "interval_bytes",
            type=click.IntRange(0, INT32_MAX),
            metavar="BYTES",
            help="index.interval.bytes of the topics. [default: found from the indexes]",
        ),
        partition_option,
        click.argument("topic", metavar="[TOPIC]", required=False),
        directory_argument,
    ):
        function = option(function)
    return function


def check_partitions(topic: str | None, partitions: tuple[int, ...]) -> None:
    """Refuse partitions of no topic, before Spark is started for them."""
    if topic is None and partitions:
        raise click.UsageError("--partition needs a TOPIC.")


def finding_lines(result: JobResult, *, as_json: bool) -> Iterator[str]:
    """Yield a line for each fault, as `tidelog index` has them; notes go to stderr, unless a script reads."""
    from tidelog.storage.index_tools.index_finding import Finding

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
