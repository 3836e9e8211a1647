"""`python -m studies [NAME...]`: measure what KIP-32 and KIP-33 claim, and write the report."""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from studies.catalogue import STUDIES
from studies.work_dir import remove_abandoned
from tidelog.cli.app import Program
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.printing import notices
from tidelog.cli.printing.output import STDOUT, open_output
from tidelog.clock import SystemClock
from tidelog.errors import NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from studies.chapter import Chapter
    from studies.report.page import Facts
    from tidelog.spark.jobs.distribute import Progress
    from tidelog.spark.jobs.result import JobResult


GOING_SECONDS = 4.0
"""How long a run that ends early looks for workers that start or continue, in seconds: Spark kills them after two seconds."""
GONE_SECONDS = 30.0
"""How long such a run then waits for workers that are still running, in seconds."""


@click.command("studies", cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(STUDIES)))
@click.option(
    "--out", metavar="FILE", default="report.html", show_default=True, help="Where the report goes; its folder is made."
)
@click.option(
    "--scale",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    metavar="X",
    help="How much is generated and measured, of what the report has. [default: 1]",
)
@job_options
def command(names: tuple[str, ...], out: str, scale: float, options: JobOptions) -> None:
    """Measure the claims of KIP-32 and KIP-33 on generated logs, and write one HTML file that says what came out.

    NAME is one of which-index, options, policies, use-cases; all of them by default. Everything that is generated is seeded,
    and named in the report. Times are measured on this machine; all else comes out the same anywhere.
    """
    _check_packages()
    if out != STDOUT:
        Path(out).absolute().parent.mkdir(parents=True, exist_ok=True)

    def work(spark: SparkSession, progress: Progress) -> JobResult:
        from studies.job import run_studies

        began = time.monotonic()
        _send_to_workers(spark)
        result, chapters = run_studies(spark, names or None, scale, progress)
        _write(out, chapters, _facts(spark, scale, time.monotonic() - began))
        return result

    try:
        run_job(options, "studies", work)
    except BaseException:
        remove_abandoned(GOING_SECONDS, GONE_SECONDS)
        raise
    if out != STDOUT:
        notices.print_line(f"the report is in {out}")


def _check_packages() -> None:
    # Check before minutes of work, not after them.
    for package in ("jinja2", "matplotlib"):
        if find_spec(package) is None:
            raise NotFoundError(f"{package} is not installed: pip install -e '.[study]'")


def _send_to_workers(spark: SparkSession) -> None:
    """Send this package to a cluster's workers, because it is not installed there. Workers on this machine have it."""
    master = spark.sparkContext.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        return
    from pyspark import SparkFiles

    # Spark serves the file from this folder, and removes the folder when it stops.
    folder = tempfile.mkdtemp(dir=SparkFiles.getRootDirectory())
    here = Path(__file__).resolve().parent
    spark.sparkContext.addPyFile(shutil.make_archive(f"{folder}/studies", "zip", here.parent, here.name))


def _facts(spark: SparkSession, scale: float, seconds: float) -> Facts:
    from importlib.metadata import version

    from studies.report.page import Facts

    cores = spark.sparkContext.defaultParallelism
    now_ms = SystemClock().now_ms()
    return Facts(now_ms, version("tidelog"), platform.python_version(), spark.version, cores, scale, seconds)


def _write(out: str, chapters: list[Chapter], facts: Facts) -> None:
    from studies.report.page import render

    page = render(chapters, facts)
    with open_output(out, format_name="html", binary=False, data_dir=None) as stream:
        stream.write(page.encode())
