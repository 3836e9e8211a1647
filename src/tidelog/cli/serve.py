"""`tidelog serve`: a broker for any Kafka client, on this machine only unless told otherwise.

| | |
|---|---|
| properties | Kafka's `server.properties` with `--config`; single ones with `--property` win, the other options win over both |
| stdout | one line once clients are served: `bootstrap.servers=host:port` |
| stderr | what an operator wants to know, a line each, with the time |
| TERM or INT | what was begun is answered, logs are flushed and closed, the clean-shutdown file is written; exit code 0 |
| ... a second time | the end, at once; exit code 128 and the signal, the next start recovers |
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version

import click

from tidelog.broker.config import BrokerConfig
from tidelog.broker.listeners import PLAINTEXT, Listener, parse_address, parse_listeners
from tidelog.broker.running import Running, running
from tidelog.broker.server_properties import read_properties_file, sort_properties
from tidelog.broker.unused_properties import GUARDS
from tidelog.cli import notices
from tidelog.cli.app import EXIT_ERROR
from tidelog.clock import Clock, SystemClock
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.log_manager import LoadProgress, LogManager, Progress

logger = logging.getLogger("tidelog.serve")

PROGRESS_S = 2.0
"""Between two lines of a start that takes long."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

# Nearly all of a broker's garbage is freed by counting; a look for the rest every 700 objects would cost more than it finds.
GC_THRESHOLDS = (50_000, 20, 50)


@click.command(short_help="Serve a data folder to Kafka clients.")
@click.option(
    "--data", "data_dir", metavar="DIR", type=click.Path(), help="The data folder; made if missing. [default: log.dirs]"
)
@click.option("--config", "config_file", metavar="FILE", type=click.Path(), help="Kafka's server.properties, as it is.")
@click.option("--listen", metavar="[HOST:]PORT", help="Where to listen; ':PORT' for every interface. [default: 127.0.0.1:9092]")
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to. [default: where it listens]")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, help="A property of a broker or a topic; may be repeated."
)
@click.option("--metrics", "metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics here.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What is told on stderr.",
)
@click.pass_context
def command(
    ctx: click.Context,
    data_dir: str | None,
    config_file: str | None,
    listen: str | None,
    advertise: str | None,
    properties: tuple[str, ...],
    metrics: str | None,
    log_level: str,
) -> None:
    """Serve a data folder to Kafka clients, of any release, until TERM or Ctrl-C.

    Only programs on this machine can connect, unless --listen or the configuration says otherwise: there is no access control.
    A second TERM or Ctrl-C ends at once.
    """
    given = _single_properties(properties)
    with _log_lines(log_level):
        file = _file_properties(config_file)
        wanted = sort_properties({**file, **given}, topic_names=True)
        config = _with_addresses(wanted.config, listen, advertise)
        folder = data_dir or config.log_dir
        if folder is None:
            raise click.UsageError("--data is missing, and no configuration names a folder (log.dirs).")
        metrics_at = None if metrics is None else parse_address(metrics)
        clock: Clock = ctx.find_root().obj or SystemClock()
        manager = LogManager(
            folder, clock, properties=wanted.manager, progress=_load_progress(), recovery_progress=_recovery_progress()
        )
        if not _serve(manager, config, clock, metrics_at):
            ctx.exit(EXIT_ERROR)


# --- properties


def _single_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise click.UsageError(f"--property {pair!r} is no NAME=VALUE.")
        found[name.strip()] = value.strip()
    unknown = sort_properties(found, topic_names=True).unknown
    if unknown:
        raise click.UsageError(f"--property: a broker has no {', '.join(unknown)}.")
    return found


def _file_properties(path: str | None) -> Mapping[str, str]:
    """Read the file; say once what is not understood, and once what is and has no use here. Neither goes any further."""
    if path is None:
        return {}
    found = read_properties_file(path)
    file = sort_properties(found)
    if file.unknown:
        logger.warning("%s: unknown, and ignored: %s", path, ", ".join(file.unknown))
    guards = [name for name in GUARDS if name in file.unused and found[name] not in ("", "none")]
    if guards:
        logger.warning("%s: nobody is kept from anything by %s: there is no access control", path, ", ".join(guards))
    rest = [name for name in file.unused if name not in guards]
    if rest:
        logger.info("%s: not used here: %s", path, ", ".join(rest))
    return {name: value for name, value in found.items() if name not in {*file.unknown, *file.unused}}


def _with_addresses(config: BrokerConfig, listen: str | None, advertise: str | None) -> BrokerConfig:
    if listen is None and advertise is None:
        return config
    told = None if advertise is None else parse_address(advertise)
    if listen is None:
        assert told is not None
        first = config.listeners[0]._replace(advertised_host=told[0], advertised_port=told[1])
        return replace(config, listeners=(first, *config.listeners[1:]))
    host, port = parse_address(listen)
    if told is not None:
        return replace(config, listeners=(Listener(PLAINTEXT, host, port, *told),))
    return replace(config, listeners=parse_listeners({"listeners": f"{PLAINTEXT}://{_joined(host, port)}"}))


# --- serving


def _serve(manager: LogManager, config: BrokerConfig, clock: Clock, metrics_at: tuple[str, int] | None) -> bool:
    began = time.monotonic()
    logger.info("tidelog %s, process %d, data folder %s", version("tidelog"), os.getpid(), manager.directory)
    manager.startup()
    try:
        owner = manager.owner
        logger.info(
            "node %d of cluster %s: %d partitions loaded in %.2f s%s",
            owner.node_id,
            owner.cluster_id,
            len(manager.logs),
            time.monotonic() - began,
            ", recovered: the last end was no clean one" if manager.logs and not manager.had_clean_shutdown else "",
        )
        for key, reason in manager.offline_partitions().items():
            logger.error("%s-%d is offline: %s", *key, reason)
        asyncio.run(_until_asked_to_end(manager, config, clock, metrics_at))
    except BaseException:
        manager.shutdown()
        raise
    with _end_at_once_when_asked_again():
        is_clean = manager.shutdown()
    logger.info("ended %s", "cleanly" if is_clean else "with errors: the next start recovers")
    return is_clean


async def _until_asked_to_end(
    manager: LogManager, config: BrokerConfig, clock: Clock, metrics_at: tuple[str, int] | None
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def asked(number: int) -> None:
        if stop.is_set():
            _end_at_once(number)
        logger.info("%s: ending; once more: at once", signal.Signals(number).name)
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, asked, number)
    with ExitStack() as stack:
        async with running(manager, config, clock) as broker:
            if metrics_at is not None:
                _serve_metrics(broker, loop, stack, *metrics_at)
            addresses = ",".join(_joined(one.advertised_host, one.advertised_port) for one in broker.listeners)
            logger.info("serving at %s", ", ".join(map(_described, broker.listeners)))
            print(f"bootstrap.servers={addresses}", flush=True)
            gc.collect()
            gc.freeze()  # What is here now stays: no later look at it.
            gc.set_threshold(*GC_THRESHOLDS)
            await stop.wait()


def _serve_metrics(broker: Running, loop: asyncio.AbstractEventLoop, stack: ExitStack, host: str, port: int) -> None:
    # Few want them, and the library takes a good part of a start's time.
    from tidelog.broker.prometheus import MetricsServer, Snapshot, snapshot

    async def now() -> Snapshot:
        return snapshot(broker.node)

    def ask() -> Snapshot:
        return asyncio.run_coroutine_threadsafe(now(), loop).result(timeout=10)

    server = MetricsServer(host, port, ask)
    stack.callback(server.close)
    logger.info("metrics at http://%s/metrics", _joined(*server.address))


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _described(listener: Listener) -> str:
    here, told = (listener.host or "*", listener.port), (listener.advertised_host, listener.advertised_port)
    return _joined(*here) if here == told else f"{_joined(*here)} as {_joined(*told)}"


# --- the end


def _end_at_once(number: int) -> None:
    logger.warning("%s again: ended at once, the next start recovers", signal.Signals(number).name)
    os._exit(128 + number)


@contextmanager
def _end_at_once_when_asked_again() -> Iterator[None]:
    previous = {number: signal.signal(number, lambda number, frame: _end_at_once(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# --- log lines


class _Lines(logging.Formatter):
    """`2026-11-22 03:15:33.123 info  broker: ...`, UTC."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(area)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.area = record.name.removeprefix("tidelog.")
        record.levelname = f"{record.levelname.lower():7}"
        return super().format(record)


@contextmanager
def _log_lines(level: str) -> Iterator[None]:
    """Write log lines to stderr instead of a command's notes."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    names = [logging.getLogger(name) for name in ("tidelog", "asyncio")]
    previous = [(log, log.level) for log in names]
    notices.uninstall()
    for log in names:
        log.addHandler(handler)
        log.setLevel(level.upper())
    try:
        yield
    finally:
        for log, before in previous:
            log.removeHandler(handler)
            log.setLevel(before)
        notices.install()


class _NowAndThen:
    """Whether enough time has gone by since the last line."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._told < PROGRESS_S:
            return False
        self._told = now
        return True


def _load_progress() -> Progress:
    is_time = _NowAndThen()

    def progress(at: LoadProgress) -> None:
        if is_time():
            logger.info("%d of %d partitions loaded", at.partitions_done, at.partitions)

    return progress


def _recovery_progress() -> Callable[[RecoveryProgress], None]:
    is_time = _NowAndThen()

    def progress(at: RecoveryProgress) -> None:
        if is_time():
            logger.info("%s: %d of %d bytes recovered", at.directory.name, at.bytes_done, at.bytes)

    return progress
