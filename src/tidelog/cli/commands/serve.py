"""`tidelog serve`: a broker for any Kafka client, on this machine only unless configured otherwise.

| | |
|---|---|
| properties | Kafka's `server.properties` with `--config`; `--property` takes precedence, other options over both |
| stdout | one line once clients are served: `bootstrap.servers=host:port` |
| stderr | log lines with the time |
| TERM or INT | pending requests are answered, logs are flushed and closed, the clean-shutdown file is written; exit code 0 |
| ... a second time | ends at once; exit code 128 plus the signal; the next start recovers |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import click

from tidelog.broker.server.listeners import Listener, joined, parse_address, parse_listeners
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.server_properties import described, sort_properties
from tidelog.broker.settings.unused_properties import GUARDS
from tidelog.cli.app import EXIT_ERROR
from tidelog.cli.local_path import LocalPath
from tidelog.cli.printing import notices
from tidelog.cli.printing.log_lines import log_lines
from tidelog.clock import Clock, SystemClock
from tidelog.folder_list import are_several
from tidelog.properties_file import read_properties_file
from tidelog.security.client_config import PLAINTEXT

logger = logging.getLogger("tidelog.serve")


@click.command()
@click.option("--data", "data_dir", metavar="DIR", type=LocalPath(), help="The data folder; made if missing. [default: log.dirs]")
@click.option("--config", "config_file", metavar="FILE", type=LocalPath(), help="Kafka's server.properties, unchanged.")
@click.option("--listen", metavar="[HOST:]PORT", help="Where to listen; ':PORT' for every interface. [default: 127.0.0.1:9092]")
@click.option("--advertise", metavar="HOST:PORT", help="The address given to clients. [default: where it listens]")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property of a broker or a topic; may be repeated."
)
@click.option("--read-only", is_flag=True, help="Never write to the folder, which may be read-only; refuse requests that would.")
@click.option("--metrics", "metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics here.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Log level on stderr.",
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
    metrics: str | None,
    log_level: str,
) -> None:
    """Serve a data folder to Kafka clients, of any release, until TERM or Ctrl-C.

    Only programs on this machine can connect, unless --listen or the configuration says otherwise. Without an authorizer
    clients that connect have full access. A second TERM or Ctrl-C ends at once.
    """
    given = _single_properties(properties)
    # Imported here, so that listing the commands does not import asyncio and the storage engine.
    from tidelog.cli.commands.serving import serve

    notices.note_interpreted()
    with log_lines(log_level):
        file = _file_properties(config_file, given)
        wanted = sort_properties({**file, **given}, topic_names=True)
        config = _with_addresses(wanted.config, listen, advertise)
        folder = data_dir or config.log_dir
        if folder is None:
            raise click.UsageError("--data is missing, and no configuration names a folder (log.dirs).")
        if are_several(folder):
            raise click.UsageError(f"a broker has one data folder, not several: {folder}.")
        metrics_at = None if metrics is None else parse_address(metrics)
        clock: Clock = ctx.find_root().obj or SystemClock()
        if not serve(folder, wanted.manager, config, clock, metrics_at, read_only=read_only):
            ctx.exit(EXIT_ERROR)


# --- properties


def _single_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise click.UsageError(f"--property {pair!r} is not NAME=VALUE.")
        found[name.strip()] = value.strip()
    unknown = sort_properties({name: found[name] for name in found if name != "process.roles"}, topic_names=True).unknown
    if unknown:
        raise click.UsageError(f"--property: a broker has no {described(unknown, topic_names=True)}.")
    return found


def _file_properties(path: str | None, given: Mapping[str, str]) -> Mapping[str, str]:
    """Read the configuration file. Unknown properties and properties without effect are dropped, each kind with one warning.

    `given` properties override the file's. They may also decide which properties apply, as the roles do.
    """
    if path is None:
        return {}
    found = read_properties_file(path)
    wanted = sort_properties({**found, **given})
    unknown, unused = ([name for name in names if name in found] for names in (wanted.unknown, wanted.unused))
    if unknown:
        logger.warning("%s: unknown, and ignored: %s", path, described(unknown))
    guards = [name for name in GUARDS if name in unused and found[name] not in ("", "none")]
    if guards:
        logger.warning("%s: %s have no effect: this broker does not support them", path, ", ".join(guards))
    rest = [name for name in unused if name not in guards]
    if rest:
        logger.info("%s: not used here: %s", path, ", ".join(rest))
    return {name: value for name, value in found.items() if name not in {*unknown, *unused}}


def _with_addresses(config: BrokerConfig, listen: str | None, advertise: str | None) -> BrokerConfig:
    if listen is None and advertise is None:
        return config
    advertised = None if advertise is None else parse_address(advertise)
    if listen is None:
        assert advertised is not None
        first = config.listeners[0]._replace(advertised_host=advertised[0], advertised_port=advertised[1])
        return replace(config, listeners=(first, *config.listeners[1:]))
    host, port = parse_address(listen)
    # Use the same listener name everywhere: other brokers of a cluster look it up by its name.
    name = PLAINTEXT if config.cluster is None else config.cluster.inter_broker_listener_name
    if advertised is not None:
        return replace(config, listeners=(Listener(name, host, port, *advertised),))
    (one,) = parse_listeners({"listeners": f"{PLAINTEXT}://{joined(host, port)}"})
    return replace(config, listeners=(one._replace(name=name),))
