"""`tidelog serve`: the broker's process from start to end, and its signals.

This module imports asyncio and the storage engine, so it is imported only to serve.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from tidelog.broker.cluster.startup import manager_of, serving
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.net.answer_rounds import run
from tidelog.broker.read_only import READ_ONLY_APIS, READ_ONLY_SETTINGS
from tidelog.broker.requests.listeners import Listener, joined
from tidelog.broker.serving_broker import ServingBroker, log_loaded
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.cli.serving import service_manager
from tidelog.clock import Clock
from tidelog.config import PropertyValue
from tidelog.storage.folder import read_only_view
from tidelog.storage.folder.read_only_view import ReadOnlyView
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.log_manager import LoadProgress, LogManager, Progress
from tidelog.storage.member_log_manager import MemberLogManager

logger = logging.getLogger("tidelog.serve")

T = TypeVar("T")

PROGRESS_S = 2.0
"""Seconds between two progress lines of a slow start."""

STALLED_S = 120.0
"""Seconds without progress after which a shutdown counts as stalled. Only waiting for the disk can take longer."""

EXIT_STALLED = 1

WIND_UP_S = 1.0
"""Seconds that an idle thread may take to end."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

announces_metrics = False
"""Whether to print the address of the metrics to stdout, for the process that started this one (`one_of_many`)."""

# Nearly all of a broker's garbage is freed by reference counting; a collection every 700 objects would cost more than it frees.
# A collection of younger objects (up to the product of the first two numbers) blocks the interpreter for about ten
# milliseconds.
GC_THRESHOLDS = (5_000, 5, 800)

YOUNG_LOOKS = 10
"""After this many collections of the youngest objects, `Collector` collects the next older generation."""

MANY_OBJECTS = 10_000
"""When there are this many old objects, `Collector` collects and freezes them, which takes some milliseconds."""

SWITCH_INTERVAL_S = 0.0005
"""Seconds that the event loop waits for another thread's Python code (`broker.server.wide_requests`). Python's default is ten
times as long."""


def serve(
    data_dir: str | Path,
    properties: Mapping[str, PropertyValue],
    config: BrokerConfig,
    clock: Clock,
    metrics_at: tuple[str, int] | None,
    *,
    read_only: bool = False,
) -> bool:
    """Serve until a signal ends the process. Return whether the shutdown was clean. `properties` are the log manager's.

    Raises what `LogManager.startup` raises, InvalidArgumentError and StorageError for an address that cannot be bound.
    """
    apis = APIS
    with ExitStack() as stack:
        if read_only:
            view = stack.enter_context(ReadOnlyView(data_dir))
            logger.info("%s is served read-only, as it is now: nothing in it is changed", view.directory)
            data_dir, properties = view.path, {**properties, **read_only_view.PROPERTIES}
            config, apis = replace(config, **READ_ONLY_SETTINGS), READ_ONLY_APIS
        scraped = None if metrics_at is None else _Scraped(stack, *metrics_at)
        return _serve_folder(data_dir, properties, config, clock, apis, scraped)


def _serve_folder(
    data_dir: str | Path,
    properties: Mapping[str, PropertyValue],
    config: BrokerConfig,
    clock: Clock,
    apis: tuple[Api, ...],
    scraped: _Scraped | None,
) -> bool:
    began = time.monotonic()
    watchdog = _Watchdog()
    manager = manager_of(data_dir, clock, config, properties, progress=_load_progress(), recovery_progress=_recovery_progress())
    logger.info("tidelog %s, process %d, data folder %s", version("tidelog"), os.getpid(), manager.directory)
    if isinstance(manager, MemberLogManager):
        manager.open()
    else:
        manager.startup()
    try:
        if not isinstance(manager, MemberLogManager):
            log_loaded(manager, time.monotonic() - began)
        run(_until_asked_to_end(manager, config, clock, scraped, apis, watchdog))
    except BaseException:
        manager.shutdown()
        raise
    began = time.monotonic()
    is_clean = manager.shutdown(progress=watchdog.moved)
    text = "cleanly" if is_clean else "with errors (the next start runs recovery)"
    logger.info("ended %s, logs closed in %.2f s", text, time.monotonic() - began)
    _leave_stuck_threads(is_clean=is_clean)
    watchdog.stop()
    return is_clean


async def _until_asked_to_end(
    manager: LogManager,
    config: BrokerConfig,
    clock: Clock,
    scraped: _Scraped | None,
    apis: tuple[Api, ...],
    watchdog: _Watchdog,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    starting = asyncio.current_task()

    def asked(number: int) -> None:
        logger.info("%s: shutting down; send it again to stop at once", signal.Signals(number).name)
        service_manager.notify_stopping()
        if scraped is not None:
            scraped.health.stopping()
        watchdog.start()
        stop.set()
        if starting is not None:
            starting.cancel()  # A broker of a cluster may wait long for its controllers.

    def on_signal(number: int, frame: object) -> None:
        _end_when_asked_again()  # The signal handler works even while this thread waits for another one.
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(asked, number)

    for number in SIGNALS:
        # `loop.add_signal_handler` is not used: it loses a signal that arrives while other threads have filled its wake-up pipe.
        signal.signal(number, on_signal)
    async with AsyncExitStack() as stack:
        try:
            broker = await stack.enter_async_context(serving(manager, config, clock, apis=apis))
        except asyncio.CancelledError:
            if stop.is_set():
                return
            raise
        starting = None
        if scraped is not None:
            scraped.report(broker, loop, stack)
        addresses = ",".join(joined(one.advertised_host, one.advertised_port) for one in broker.listeners)
        logger.info("serving at %s", ", ".join(map(_described, broker.listeners)))
        print(f"bootstrap.servers={addresses}", flush=True)
        service_manager.notify_ready(f"serving at {addresses}", loop)
        gc.collect()
        gc.freeze()  # The objects that exist now stay until the end: later collections skip them.
        broker.node.slices.collect = Collector()
        broker.node.slices.keep = gc.freeze
        broker.node.wide_requests.before_collecting = freeze_new_objects
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        await broker.until(stop)


def freeze_new_objects() -> None:
    """Freeze all objects if a wide request has left many: nothing is collected during such a request, so the next collection
    would traverse all of them.
    """
    if gc.get_count()[0] >= MANY_OBJECTS:
        gc.freeze()


class Collector:
    """Collects young objects. Call it regularly during long work, so that no collection takes long.

    Python starts a collection once there were many more allocations than deallocations, and counts the deallocations of old
    objects too. If each response to a thousand fetches replaces an older one, the difference stays at zero, and the next
    collection covers a million objects. It takes a sixth of a second, during which no client is served. Use only on the event
    loop's thread.

    Objects that stay, such as those of logs, are collected once and then frozen, like the objects that exist after the start: a
    full collection with 5,000 new logs takes 60 ms. Frozen objects are still freed by reference counting. Only reference cycles
    that become unreachable later stay in memory, and the broker makes none (`tests/broker/test_widest.py`).
    """

    def __init__(self) -> None:
        self._own_looks = self._before = 0
        gc.set_threshold(*GC_THRESHOLDS)

    def __call__(self) -> None:
        """Collect the youngest objects, or from time to time the next older generation. Do nothing while a wide request
        is in memory.
        """
        if not gc.isenabled():
            return
        _, looks, before = gc.get_count()
        if before != self._before:
            before = self._freeze(before)
        if looks < YOUNG_LOOKS:
            gc.collect(0)
            return
        gc.collect(1)
        # Python runs a full collection after a number of younger ones. The collections that are started here must not count.
        self._own_looks = self._own_looks + 1 if before >= self._own_looks else 1
        first, second, third = GC_THRESHOLDS
        gc.set_threshold(first, second, third + self._own_looks)

    def _freeze(self, before: int) -> int:
        """Freeze the old objects if there are many. Return the number of collections of younger objects since the last full
        collection or freeze.
        """
        old = len(gc.get_objects(2))
        if old >= MANY_OBJECTS:
            if old < 2 * MANY_OBJECTS:  # With more, one request has made nearly all of them, and a collection would take long.
                gc.collect()
            gc.freeze()
            before = 0
        self._before = before
        return before


class _Scraped:
    """The HTTP server for metrics and health. It runs from before the logs are loaded until they are closed."""

    def __init__(self, stack: ExitStack, host: str, port: int) -> None:
        # Imported only here, because the library takes a good part of the startup time.
        from tidelog.broker.server.scraped.health import Health
        from tidelog.broker.server.scraped.metrics_server import MetricsServer

        self.health = Health()
        self._server = MetricsServer(host, port, self.health)
        stack.callback(self._server.close)
        logger.info("metrics at http://%s/metrics", joined(*self._server.address))
        if announces_metrics:
            print(f"metrics={joined(*self._server.address)}", flush=True)

    def report(self, broker: ServingBroker, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        """Report the broker's metrics and health until `stack` ends."""
        from tidelog.broker.server.scraped.group_lags import GroupLags
        from tidelog.broker.server.scraped.health import ANSWER_S
        from tidelog.broker.server.scraped.prometheus import snapshot

        def on_loop(work: Callable[[], T]) -> T:
            async def done() -> T:
                return work()

            return asyncio.run_coroutine_threadsafe(done(), loop).result(timeout=ANSWER_S)

        plane = broker.node.plane

        def why_not_ready() -> str | None:
            return "the controllers have fenced this broker" if plane is not None and plane.is_fenced else None

        groups = GroupLags(broker.node, on_loop)
        self._server.report(partial(snapshot, broker.node, on_loop), groups.scrape)
        self.health.serving(partial(on_loop, why_not_ready))
        stack.callback(self._server.report_no_more)
        stack.callback(self.health.stopping)


def _described(listener: Listener) -> str:
    here, advertised = (listener.host or "*", listener.port), (listener.advertised_host, listener.advertised_port)
    return joined(*here) if here == advertised else f"{joined(*here)} as {joined(*advertised)}"


# --- the end


def _end_at_once(number: int) -> None:
    logger.warning("%s again: stopping at once; the next start runs recovery", signal.Signals(number).name)
    os._exit(128 + number)


class _Watchdog:
    """Ends the process if its shutdown makes no progress for `STALLED_S`, regardless of what it is waiting for."""

    def __init__(self) -> None:
        self._moved_at = time.monotonic()
        self._is_over = threading.Event()

    def start(self) -> None:
        self.moved()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def moved(self) -> None:
        self._moved_at = time.monotonic()

    def stop(self) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(1.0):
            if time.monotonic() - self._moved_at >= STALLED_S:
                logger.error(
                    "the shutdown has made no progress for %.0f s: stopping at once; the next start runs recovery", STALLED_S
                )
                os._exit(EXIT_STALLED)


def _end_when_asked_again() -> None:
    """Make the next signal end the process, even if the process is waiting."""
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: _end_at_once(number))


def _leave_stuck_threads(*, is_clean: bool) -> None:
    """End the process even if threads wait for a disk that does not respond. A normal exit of Python would wait for these
    threads.
    """
    others = [thread for thread in threading.enumerate() if thread.name.startswith("tidelog-") and not thread.daemon]
    for thread in others:
        thread.join(WIND_UP_S)
    stuck = [thread.name for thread in others if thread.is_alive()]
    if stuck:
        logger.error("ended while threads were still waiting: %s", ", ".join(stuck))
        os._exit(0 if is_clean else 1)


# --- slow starts


class _NowAndThen:
    """Returns whether enough time has passed since the last progress line."""

    def __init__(self) -> None:
        self._reported_at = time.monotonic()

    def __call__(self) -> bool:
        now = time.monotonic()
        if now - self._reported_at < PROGRESS_S:
            return False
        self._reported_at = now
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
