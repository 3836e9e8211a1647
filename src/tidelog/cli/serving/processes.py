"""`tidelog serve --processes`: this process controls N others, each of which is a broker of its own port and folder.

| | |
|---|---|
| ``DIR/__cluster_metadata-0`` | topics and settings, written by this process (`broker.controller`) |
| ``DIR/process1`` … ``processN`` | the data folders of brokers 1 to N, ordinary members of a cluster |
| ports | the configured one for broker 1, the next ones for the others |
| a broker's process ends | its partitions have no leader; it is started again, after a wait that grows if that goes on |
| this process ends | the others end, too: each watches its standard input, a pipe from here |

Brokers and controller authenticate each other with a password that this process draws at its start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.serving import controlling
from tidelog.broker.requests.listeners import Listener, joined
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.cli.serving import service_manager
from tidelog.storage.folder.process_folders import CONTROLLER_ID, place, process_folder
from tidelog.storage.log_manager import LogManager

if TYPE_CHECKING:
    from tidelog.clock import Clock

logger = logging.getLogger("tidelog.serve")

MOST = 64
"""The most processes."""

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
STEADY_S = 60.0
"""A process that ran for so long is started again without a wait."""

STOP_S = 150.0
"""How long the processes may take to end: longer than a broker's own watch over its shutdown."""

_USER = "broker"
_CONTROLLER, _LOCAL = "CONTROLLER", "LOCAL"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_processes(
    data_dir: str | Path, properties: Mapping[str, str], listeners: tuple[Listener, ...], clock: Clock, count: int, log: list[str]
) -> bool:
    """Serve with `count` processes until a signal; return whether the shutdown was clean. `log` are the options of log lines.

    Raises InvalidArgumentError for a folder of another kind, what `LogManager.startup` raises.
    """
    folder = Path(data_dir)
    password = secrets.token_hex(32)
    place(folder, clock, count)
    manager = _manager(folder, properties, clock)
    manager.startup()
    try:
        with ExitStack() as stack:
            at = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-processes-")))
            run = _Run(folder, properties, listeners, clock, count, log, password, at, manager)
            is_clean = asyncio.run(run.until_asked_to_end())
    finally:
        has_closed = manager.shutdown()
    return is_clean and has_closed


def _manager(folder: Path, properties: Mapping[str, str], clock: Clock) -> LogManager:
    wanted = sort_properties(_controllers(properties, "", 0), topic_names=True)
    return LogManager(folder, clock, properties={**wanted.manager, "node.id": CONTROLLER_ID})


def _jaas(user: str, password: str, *, is_server: bool) -> str:
    known = f' user_{user}="{password}"' if is_server else ""
    return f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{password}"{known};'


def _controllers(properties: Mapping[str, str], password: str, port: int) -> dict[str, str]:
    """Return the properties of the controller: those of topics and limits are the brokers'."""
    others = {
        name: value for name, value in properties.items() if not name.startswith(("listener", "advertised.", "sasl.", "ssl."))
    }
    return {
        **others,
        "listeners": f"{_CONTROLLER}://127.0.0.1:{port}",
        "listener.security.protocol.map": f"{_CONTROLLER}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{_CONTROLLER.lower()}.plain.sasl.jaas.config": _jaas(_USER, password, is_server=True),
        "super.users": ";".join(filter(None, (properties.get("super.users"), f"User:{_USER}"))),
    }


def _brokers(
    properties: Mapping[str, str], listeners: tuple[Listener, ...], number: int, folder: Path, password: str, controller_port: int
) -> dict[str, str]:
    """Return the properties of the broker with this number."""
    mine = [one._replace(port=one.port and one.port + number - 1) for one in listeners]
    names = {_CONTROLLER: "SASL_PLAINTEXT", _LOCAL: "SASL_PLAINTEXT", **{one.name: one.protocol for one in listeners}}
    advertised = [
        f"{one.name}://{joined(one.advertised_host, one.advertised_port + number - 1)}"
        for one in listeners
        if one.advertised_port
    ]
    result = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **properties,
        "process.roles": "broker",
        "node.id": str(number),
        "log.dirs": str(folder),
        "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{controller_port}",
        "controller.listener.names": _CONTROLLER,
        "listeners": ",".join([f"{one.name}://{joined(one.host, one.port)}" for one in mine] + [f"{_LOCAL}://127.0.0.1:0"]),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
        "inter.broker.listener.name": _LOCAL,
        "sasl.mechanism.controller.protocol": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": ",".join(
            dict.fromkeys([*properties.get("sasl.enabled.mechanisms", "").split(","), "PLAIN"])
        ).strip(","),
        f"listener.name.{_CONTROLLER.lower()}.plain.sasl.jaas.config": _jaas(_USER, password, is_server=False),
        f"listener.name.{_LOCAL.lower()}.plain.sasl.jaas.config": _jaas(_USER, password, is_server=True),
        f"listener.name.{_LOCAL.lower()}.sasl.enabled.mechanisms": "PLAIN",
        "super.users": ";".join(filter(None, (properties.get("super.users"), f"User:{_USER}"))),
    }
    if advertised:
        result["advertised.listeners"] = ",".join([*advertised, f"{_LOCAL}://127.0.0.1:0"])
    return result


class _Run:
    """One run: the controller, and the processes."""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        listeners: tuple[Listener, ...],
        clock: Clock,
        count: int,
        log: list[str],
        password: str,
        at: Path,
        manager: LogManager,
    ) -> None:
        self._folder = folder
        self._properties = properties
        self._listeners = listeners
        self._clock = clock
        self._numbers = range(1, count + 1)
        self._log = log
        self._password = password
        self._at = at
        self._manager = manager
        self._stop: asyncio.Event
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._addresses: dict[int, str] = {}
        self._is_clean = True

    async def until_asked_to_end(self) -> bool:
        """Serve until a signal. Return whether all processes ended cleanly."""
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._asked, number)
        config = sort_properties(_controllers(self._properties, self._password, 0), topic_names=True).config
        async with controlling(self._manager, config, self._clock, self._numbers) as controller:
            port = controller.listeners[0].port
            node = cast("ControllerNode", controller.node)
            logger.info("process %d controls %d brokers", os.getpid(), len(self._numbers))
            keeping = [asyncio.create_task(self._keep(node, number, port)) for number in self._numbers]
            ready = asyncio.create_task(self._announce(node))
            await self._stop.wait()
            ready.cancel()
            await self._end(keeping)
        return self._is_clean

    def _asked(self, number: int) -> None:
        if self._stop.is_set():
            logger.warning("%s again: the brokers are killed, and the next start recovers", signal.Signals(number).name)
            for process in self._processes.values():
                with suppress(ProcessLookupError):
                    process.kill()
            return
        logger.info("%s: shutting down; repeat it to stop at once", signal.Signals(number).name)
        service_manager.notify_stopping()
        self._stop.set()

    async def _announce(self, node: ControllerNode) -> None:
        """Print where clients connect, once all brokers serve."""
        while len(self._addresses) < len(self._numbers) or len(node.registrations.alive()) < len(self._numbers):
            await asyncio.sleep(0.02)
        addresses = ",".join(self._addresses[number] for number in self._numbers)
        print(f"bootstrap.servers={addresses}", flush=True)
        service_manager.notify_ready(f"serving at {addresses}", asyncio.get_running_loop())

    async def _keep(self, node: ControllerNode, number: int, port: int) -> None:
        """Keep a broker's process running until the end."""
        loop, wait_s = asyncio.get_running_loop(), FIRST_WAIT_S
        while not self._stop.is_set():
            began = loop.time()
            code = await self._run(number, port)
            node.fence(number)
            if self._stop.is_set():
                self._is_clean = self._is_clean and code == 0
                return
            wait_s = FIRST_WAIT_S if loop.time() - began > STEADY_S else wait_s
            what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            logger.error("broker %d: its process ended, %s; it is started again in %g s", number, what, wait_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _run(self, number: int, port: int) -> int:
        """Run a broker's process once; return its exit code."""
        folder = process_folder(self._folder, number)
        config = self._at / f"{number}.properties"
        given = _brokers(self._properties, self._listeners, number, folder, self._password, port)
        config.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in given.items()), encoding="utf-8")
        config.chmod(0o600)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tidelog.cli.serving.one_of_many",
            *("--data", str(folder), "--config", str(config), *self._log),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # A Ctrl-C in the terminal reaches this process only.
        )
        self._processes[number] = process
        assert process.stdout is not None
        async for line in process.stdout:
            name, _, addresses = line.decode().strip().partition("=")
            if name == "bootstrap.servers":
                self._addresses[number] = ",".join(addresses.split(",")[: len(self._listeners)])
        code = await process.wait()
        del self._processes[number]
        return code

    async def _end(self, keeping: list[asyncio.Task[None]]) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()
        _, left = await asyncio.wait(keeping, timeout=STOP_S)
        if left:
            logger.error("%d brokers did not end within %g s: they are killed, and the next start recovers", len(left), STOP_S)
            for process in self._processes.values():
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.wait(left)
        for task in keeping:
            task.result()


def _escaped(value: str) -> str:
    """Return a value as Java's properties files write it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
