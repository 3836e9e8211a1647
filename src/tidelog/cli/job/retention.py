"""`tidelog job retention DIR [TOPIC]`: when segments are deleted, and which records keep them, under each rule."""

from __future__ import annotations

from pathlib import Path

import click

from tidelog.cli.commands.retention import given_limits, limit_options
from tidelog.cli.job.running import JobOptions, job_options, run_job
from tidelog.cli.options import broker_config_option, broker_properties, directory_argument, optional_topic
from tidelog.cli.time_options import run_clock


@click.command("retention")
@directory_argument
@optional_topic
@limit_options
@broker_config_option
@job_options
@click.pass_context
def command(
    ctx: click.Context,
    directory: str,
    topic: str | None,
    partitions: tuple[int, ...],
    retention: str | None,
    retention_bytes: str | None,
    config: Path | None,
    options: JobOptions,
) -> None:
    """Show when segments are deleted, and how much a single record keeps, under each retention rule discussed in KIP-32 and
    KIP-33.

    \b
    largest timestamp  of the segment's records (KIP-33, Kafka)
    file time          when the file was last written (before KIP-33)
    last message       the timestamp of the segment's last record (KIP-32)
    LogAppendTime      when the segment's last batch was appended; unknown if that batch has CreateTime
    CreateTime         the largest CreateTime of the segment's records; unknown if none is stored

    With --rows there is a row for each segment and rule. The job uses the topic's own settings if the folder has them (a folder
    of Tidelog does; a folder of Kafka does if it contains the metadata log), then those of --config, then Kafka's defaults.
    Nothing is deleted.
    """  # noqa: D301  # In a raw text \b is no sign for click to keep the lines.
    from tidelog.spark.jobs import retention as job

    limits = given_limits(retention, retention_bytes)
    properties = broker_properties(config)
    clock = run_clock(ctx)
    run_job(
        options,
        "retention",
        lambda spark, progress: job.retention(
            spark,
            directory,
            topic,
            partitions=partitions or None,
            **limits,
            broker_properties=properties,
            clock=clock,
            progress=progress,
        ),
        places=[Path(directory)],
        selected=(topic, partitions),
    )
