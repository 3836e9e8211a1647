"""`tidelog serve --processes`: this process starts N others and keeps them running. Each is a broker with a port and a folder.

| | |
|---|---|
| ``DIR/process1`` … ``processN`` | the brokers' data folders (`storage.folder.process_folders`); they are members of a cluster |
| ports | the first broker has the configured port, the other brokers have the ports after it |
| their controller | this process (`broker.controller`), or the cluster's, if the configuration names one |
| a broker's first start fails | all brokers are stopped; exit code 1 |
| a broker's process ends later | its partitions have no leader; it is started again, after a wait that grows |
| this process ends | the others end, too: each watches its standard input, a pipe from here |
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.serving import controlling
from tidelog.broker.requests.listeners import joined
from tidelog.broker.server.bound_sockets import bind
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.cli.serving import service_manager
from tidelog.cli.serving.process_properties import all_listeners, as_text, brokers, controllers, members, shifted
from tidelog.errors import StorageError
from tidelog.formats.dir_lock import is_locked
from tidelog.storage.folder.process_folders import CONTROLLER_ID, place, process_folder
from tidelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from tidelog.broker.settings.broker_config import BrokerConfig
    from tidelog.clock import Clock

logger = logging.getLogger("tidelog.serve")

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
STEADY_S = 60.0
"""A process that ran for this many seconds is started again after the shortest wait."""

STOP_S = 150.0
"""Seconds that the processes may take to end: longer than a broker waits for its own shutdown (`process.STALLED_S`)."""

PropertiesOf = Callable[[int, Sequence[int]], dict[str, str]]
"""Returns the properties of a broker, from its number and the ports of its last run (empty if there was none)."""

_LOOK_S = 0.02
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_processes(
    folder: Path,
    properties: Mapping[str, str],
    config: BrokerConfig,
    clock: Clock,
    count: int,
    log: list[str],
    metrics_at: tuple[str, int] | None,
) -> bool:
    """Serve `folder` with `count` processes until SIGTERM or SIGINT; return whether the shutdown was clean. `log` has the options
    for log lines.

    Raises InvalidArgumentError, before anything is written, if the folder cannot be divided among the processes or a port is in
    use. Also raises what `LogManager.startup` raises.
    """
    every = all_listeners(config.listeners, count)
    if not any(is_locked(process_folder(folder, number)) for number in range(count + 1)):  # Else they have the ports.
        for one in every:
            bind(replace(config, listeners=(one,))).close()
    with ExitStack() as stack:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-processes-")))
        processes = Processes(count, files, log, [] if metrics_at is None else ["--metrics", "127.0.0.1:0"])
        if metrics_at is not None:
            processes.serve_metrics(stack, metrics_at)
        cluster = config.cluster
        if cluster is not None:

            def member(number: int, ports: Sequence[int]) -> dict[str, str]:
                listeners, home = shifted(config.listeners, number, ports), process_folder(folder, number)
                return members(properties, listeners, number, cluster.node_id, home)

            return asyncio.run(_as_members(processes, member))
        place(folder, clock, count)
        password = secrets.token_hex(32)
        wanted = sort_properties(controllers(properties, password), topic_names=True)
        manager = LogManager(folder, clock, properties={**wanted.manager, "node.id": CONTROLLER_ID})
        manager.startup()
        try:
            controlled = _Controlled(folder, properties, config, password)
            is_clean = asyncio.run(controlled.serve(manager, wanted.config, clock, processes))
        finally:
            has_closed = manager.shutdown()
        return is_clean and has_closed


async def _as_members(processes: Processes, member: PropertiesOf) -> bool:
    async with processes.running(member, lambda number: None):
        await processes.until_asked_to_end(lambda: True)
    return processes.is_clean


class _Controlled:
    """Brokers whose controller runs in this process."""

    def __init__(self, folder: Path, properties: Mapping[str, str], config: BrokerConfig, password: str) -> None:
        self._folder = folder
        self._properties = properties
        self._listeners = config.listeners
        self._password = password

    async def serve(self, manager: LogManager, config: BrokerConfig, clock: Clock, processes: Processes) -> bool:
        """Serve until a signal. Return whether all processes ended cleanly."""
        async with controlling(manager, config, clock, processes.numbers) as controller:
            node = cast("ControllerNode", controller.node)
            port = controller.listeners[0].port

            def broker(number: int, ports: Sequence[int]) -> dict[str, str]:
                listeners, home = shifted(self._listeners, number, ports), process_folder(self._folder, number)
                return brokers(self._properties, listeners, number, home, self._password, port)

            logger.info("process %d controls brokers 1 to %d", os.getpid(), len(processes.numbers))
            async with processes.running(broker, node.fence):
                await processes.until_asked_to_end(lambda: len(node.registrations.alive()) == len(processes.numbers))
        return processes.is_clean


class Processes:
    """The brokers' processes, numbered from 1 on; their configuration files are in `files`."""

    def __init__(self, count: int, files: Path, log: list[str], options: list[str]) -> None:
        self.numbers = range(1, count + 1)
        self.is_clean = True
        """Whether every process has ended cleanly."""
        self._files = files
        self._options = [*log, *options]
        self._stop: asyncio.Event
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._addresses: dict[int, str] = {}
        self._metrics: dict[int, str] = {}
        self._ports: dict[int, list[int]] = {}
        """The ports of each broker's last run."""

    def serve_metrics(self, stack: ExitStack, at: tuple[str, int]) -> None:
        """Serve the metrics of all processes as one page until the stack is closed."""
        from tidelog.broker.server.scraped.health import Health
        from tidelog.broker.server.scraped.metrics_server import MetricsServer
        from tidelog.cli.serving.process_metrics import ProcessMetrics

        health = Health()
        health.serving(self._why_not_ready)
        server = MetricsServer(*at, health)
        stack.callback(server.close)
        server.report_instead(ProcessMetrics(lambda: dict(self._metrics)))
        logger.info("metrics of all brokers at http://%s/metrics", joined(*server.address))

    def _why_not_ready(self) -> str | None:
        missing = [str(number) for number in self.numbers if number not in self._addresses]
        return f"brokers that do not serve: {', '.join(missing)}" if missing else None

    @asynccontextmanager
    async def running(self, properties: PropertiesOf, ended: Callable[[int], None]) -> AsyncIterator[None]:
        """Keep all processes running inside the `with` block. `properties` returns the properties of a broker; `ended` is
        called when a broker's process has ended unexpectedly.
        """
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            for number in _SIGNALS:
                loop.add_signal_handler(number, self._asked, number)
                stack.callback(loop.remove_signal_handler, number)
            keeping = [asyncio.create_task(self._keep(number, properties, ended)) for number in self.numbers]
            stack.push_async_callback(self._end, keeping)
            yield

    async def until_asked_to_end(self, is_ready: Callable[[], bool]) -> None:
        """Wait for a signal. Meanwhile, once all brokers serve and `is_ready` is true, print the address for clients."""
        stopped = asyncio.create_task(self._stop.wait())
        while not stopped.done() and not (len(self._addresses) == len(self.numbers) and is_ready()):
            await asyncio.wait([stopped], timeout=_LOOK_S)
        if not stopped.done():
            addresses = ",".join(self._addresses[number] for number in self.numbers)
            print(f"bootstrap.servers={addresses}", flush=True)
            service_manager.notify_ready(f"serving at {addresses}", asyncio.get_running_loop())
        await stopped

    def _asked(self, number: int) -> None:
        if self._stop.is_set():
            logger.warning("%s again: killing the brokers; the next start runs recovery", signal.Signals(number).name)
            self._signal_all(signal.SIGKILL)
            return
        logger.info("%s: shutting down; send it again to stop at once", signal.Signals(number).name)
        service_manager.notify_stopping()
        self._stop.set()

    def _signal_all(self, number: int) -> None:
        for process in self._running.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, number: int, properties: PropertiesOf, ended: Callable[[int], None]) -> None:
        loop, wait_s = asyncio.get_running_loop(), FIRST_WAIT_S
        while True:
            began = loop.time()
            code = await self._run(number, properties(number, self._ports.get(number, ())))
            if self._stop.is_set():
                self.is_clean = self.is_clean and code == 0
                return
            ended(number)
            if number not in self._ports and code:  # It cannot start: its own log lines say why.
                logger.error("broker %d did not start (exit code %d): stopping all brokers", number, code)
                self.is_clean = False
                self._stop.set()
                return
            if loop.time() - began > STEADY_S:
                wait_s = FIRST_WAIT_S
            what = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            logger.error("broker %d: its process ended (%s); restarting it in %g s", number, what, wait_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), wait_s)
                return
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _run(self, number: int, properties: Mapping[str, str]) -> int:
        """Run a broker's process once; return its exit code, or minus the signal that ended it."""
        config = self._files / f"{number}.properties"
        try:
            config.touch(0o600)  # It has a password.
            config.write_text(as_text(properties), encoding="utf-8")
        except OSError as error:
            raise StorageError(f"cannot write the configuration of broker {number}: {error.strerror}", path=config) from error
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tidelog.cli.serving.one_of_many", "--config", str(config), *self._options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # A Ctrl-C in the terminal is for this process, which ends the others.
        )
        self._running[number] = process
        if self._stop.is_set():
            process.terminate()
        assert process.stdout is not None
        async for line in process.stdout:
            name, _, value = line.decode().strip().partition("=")
            if name == "bootstrap.servers":
                addresses = value.split(",")
                self._addresses[number] = addresses[0]
                self._ports[number] = [int(one.rpartition(":")[2]) for one in addresses]
            elif name == "metrics":
                self._metrics[number] = value
        code = await process.wait()
        for known in (self._running, self._addresses, self._metrics):
            known.pop(number, None)
        return code

    async def _end(self, keeping: list[asyncio.Task[None]]) -> None:
        self._stop.set()
        self._signal_all(signal.SIGTERM)
        _, left = await asyncio.wait(keeping, timeout=STOP_S)
        if left:
            logger.error("brokers did not stop within %g s: killing them; the next start runs recovery", STOP_S)
            self._signal_all(signal.SIGKILL)
            await asyncio.wait(left)
        for task in keeping:
            task.result()
