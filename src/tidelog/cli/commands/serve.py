"""`tidelog serve`: a broker for any Kafka client, on this machine only unless configured otherwise.

| | |
|---|---|
| properties | Kafka's `server.properties` with `--config`; `--property` takes precedence, other options over both |
| stdout | one line once clients are served: `bootstrap.servers=host:port` |
| stderr | log lines with the time; with `--log-format json` each line is an object, even an error that ends the process |
| `--check` | the configuration and the folder are checked, nothing is written; exit code 0, or 1 if the broker would not start |
| TERM or INT | pending requests are answered, logs are flushed and closed, the clean-shutdown file is written; exit code 0 |
| ... a second time | ends at once; exit code 128 plus the signal; the next start runs recovery |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tidelog.broker.settings.server_properties import sort_properties
from tidelog.cli.app import EXIT_ERROR
from tidelog.cli.local_path import LocalPath
from tidelog.cli.printing import notices
from tidelog.cli.printing.log_lines import log_lines
from tidelog.cli.serving.configuration import (
    address_of,
    file_properties,
    one_folder,
    process_count,
    single_properties,
    with_addresses,
)
from tidelog.clock import Clock, SystemClock
from tidelog.errors import TidelogError

logger = logging.getLogger("tidelog.serve")


@click.command()
@click.option(
    "--data", "data_dir", metavar="DIR", type=LocalPath(), help="The data folder; created if missing. [default: log.dirs]"
)
@click.option("--config", "config_file", metavar="FILE", type=LocalPath(), help="Kafka's server.properties, unchanged.")
@click.option(
    "--listen", metavar="[HOST:]PORT", help="The address to listen on; ':PORT' for every interface. [default: 127.0.0.1:9092]"
)
@click.option("--advertise", metavar="HOST:PORT", help="The address advertised to clients. [default: the address of --listen]")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property of a broker or a topic; may be repeated."
)
@click.option("--read-only", is_flag=True, help="Never write to the folder, which may be read-only; refuse write requests.")
@click.option(
    "--processes",
    metavar="N|auto",
    help="Serve with N broker processes, on the port of --listen and those after it; auto: one for each core.",
)
@click.option("--metrics", "metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics at this address.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log level on stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log lines on stderr.",
)
@click.option(
    "--check", is_flag=True, help="Show everything that is wrong, and what the broker would do, without serving or writing."
)
@click.pass_context
def command(
    ctx: click.Context,
    data_dir: str | None,
    config_file: str | None,
    listen: str | None,
    advertise: str | None,
    properties: tuple[str, ...],
    read_only: bool,
    processes: str | None,
    metrics: str | None,
    log_level: str,
    log_format: str,
    check: bool,
) -> None:
    """Serve a data folder to Kafka clients, of any release, until TERM or Ctrl-C.

    Only programs on this machine can connect, unless --listen or the configuration says otherwise. Without an authorizer
    clients that connect have full access. A second TERM or Ctrl-C ends at once.
    """
    if check:
        from tidelog.cli.serving.check import check_serving

        is_fine = check_serving(
            config_file,
            properties,
            data_dir=data_dir,
            listen=listen,
            advertise=advertise,
            metrics=metrics,
            read_only=read_only,
            count=None if processes is None else process_count(processes),
        )
        ctx.exit(0 if is_fine else EXIT_ERROR)
    given = single_properties(properties)
    metrics_at = address_of("--metrics", metrics)
    # Imported here, so that listing the commands does not import asyncio and the storage engine.
    from tidelog.cli.serving.process import serve

    if log_format == "text":
        notices.note_interpreted()
    with log_lines(log_level, log_format), _errors_logged(is_json=log_format == "json"):
        file = file_properties(config_file, given)
        wanted = sort_properties({**file, **given}, topic_names=True)
        config = with_addresses(wanted.config, listen, advertise)
        folder = data_dir or config.log_dir
        if folder is None:
            raise click.UsageError("there is no data folder: give --data, or a --config with log.dirs.")
        if processes is None:
            one_folder(folder, config, read_only=read_only)
        clock: Clock = ctx.find_root().obj or SystemClock()
        if processes is not None:
            if read_only:
                raise click.UsageError("--processes and --read-only cannot be combined: one process serves a read-only folder.")
            from tidelog.cli.serving.processes import serve_processes

            log = ["--log-level", log_level, "--log-format", log_format]
            if not serve_processes(Path(folder), {**file, **given}, config, clock, process_count(processes), log, metrics_at):
                ctx.exit(EXIT_ERROR)
            return
        if not serve(folder, wanted.manager, config, clock, metrics_at, read_only=read_only):
            ctx.exit(EXIT_ERROR)


@contextmanager
def _errors_logged(*, is_json: bool) -> Iterator[None]:
    """For JSON output: log a fatal error as a JSON object, like every other line, and exit with code 1."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        if not is_json:
            raise
        logger.error("%s", error, exc_info=None if isinstance(error, TidelogError | OSError) else error)
        raise click.exceptions.Exit(EXIT_ERROR) from None
