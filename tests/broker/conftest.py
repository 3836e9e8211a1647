"""Brokers for tests: `start_broker` serves a folder on a free port of 127.0.0.1, in a thread with a loop of its own.

`broker` is one with nothing but Kafka's defaults. `RunningBroker.on_loop` looks into it, on its thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

# Brokers import it late, on threads; pytest rewrites the assertions of what is imported, and two rewrites at once can fail.
import tidelog.reader.time_map_file  # noqa: F401
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.net import answer_rounds
from tidelog.broker.node import Node
from tidelog.broker.serving_broker import running
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.clock import Clock, SystemClock
from tidelog.storage.log_manager import LogManager

T = TypeVar("T")


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """On a disk: brokers read in other ways from a folder in memory."""
    return disk_path


class RunningBroker:
    """A broker on a thread. `stop` ends it cleanly; the folder stays, and `start` serves it again on another port."""

    def __init__(self, data_dir: Path, clock: Clock | None = None, apis: tuple[Api, ...] = APIS, **properties: Any) -> None:
        self.data_dir = data_dir
        self.apis = apis
        self.clock = clock or SystemClock()
        self.properties = {"listeners": "PLAINTEXT://127.0.0.1:0"} | {k.replace("_", "."): v for k, v in properties.items()}
        self.is_clean: bool | None = None
        self.is_started = threading.Event()
        self._thread: threading.Thread | None = None
        self.start()

    def start(self) -> None:
        self._run_thread()
        assert self.is_started.wait(PATIENCE_S)
        self._raise_failure()

    def _run_thread(self) -> None:
        """Have a thread serve, with a loop of its own; `is_started` is set once it does, or has failed."""
        self._failure: BaseException | None = None
        self.is_started.clear()

        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            await self._serve()

        def run() -> None:
            try:
                answer_rounds.run(main())
            except BaseException as error:
                self._failure = error
            finally:
                self.is_started.set()

        self._thread = threading.Thread(target=run, name="broker")
        self._thread.start()

    async def _serve(self) -> None:
        """Serve until `_stop` is set."""
        properties = sort_properties(self.properties, topic_names=True)
        manager = LogManager(self.data_dir, self.clock, properties=properties.manager)
        manager.startup()
        try:
            async with running(manager, properties.config, self.clock, apis=self.apis) as self.running:
                self.is_started.set()
                await self._stop.wait()
        finally:
            self.is_clean = manager.shutdown()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            self._raise_failure()

    def on_loop(self, call: Callable[[], T]) -> T:
        """Call something on the broker's thread, and return what it returns."""

        async def called() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(PATIENCE_S)

    @property
    def node(self) -> Node:
        return self.running.node

    @property
    def address(self) -> tuple[str, int]:
        listener = self.running.listeners[0]
        return listener.host, listener.port

    @property
    def bootstrap_servers(self) -> str:
        return "{}:{}".format(*self.address)

    def client(self, **options: Any) -> RawClient:
        return RawClient(self.address, **options)

    def create_topic(self, name: str, partitions: int = 1, **properties: Any) -> None:
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        self.on_loop(lambda: self.node.manager.create_topic(name, partitions, settings))


StartBroker = Callable[..., RunningBroker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker with Kafka's properties, `_` for `.`; `data_dir` and `clock` if the test has its own."""
    brokers: list[RunningBroker] = []

    def start(data_dir: Path | None = None, clock: Clock | None = None, **properties: Any) -> RunningBroker:
        broker = RunningBroker(data_dir or tmp_path / f"data-{len(brokers)}", clock, **properties)
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.stop()


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker()


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client
