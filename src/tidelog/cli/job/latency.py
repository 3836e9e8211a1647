"""`tidelog job latency DIR [TOPIC]`: how long records were in transit, and how far out of order they arrived."""

from __future__ import annotations

import click

from tidelog.cli.client_options import bucket_options
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import folders_argument, optional_topic


@click.command("latency")
@folders_argument
@optional_topic
@job_options
@bucket_options
def command(directory: str, topic: str | None, partitions: tuple[int, ...], options: JobOptions) -> None:
    """Measure how long records were in transit: percentiles for each partition, and with --rows for each minute.

    \b
    latency   append time - CreateTime, on topics with LogAppendTime (format v2 keeps both)
    lateness  largest CreateTime so far - CreateTime, on topics with CreateTime,
              because their records have no append time
    unknown   records of old formats that have one time or none
    """  # noqa: D301  # In a raw text \b is no sign for click to keep the lines.
    from tidelog.spark.jobs.latency import latency

    run_job(
        options,
        "latency",
        lambda spark, progress: latency(spark, directory, topic, partitions=partitions or None, progress=progress),
        places=[directory],
        selected=(topic, partitions),
    )
