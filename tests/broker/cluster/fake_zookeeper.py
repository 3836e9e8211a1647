"""A ZooKeeper in memory, and a broker that joins its cluster: the test is the controller, and asks over a socket.

    with controlled(tmp_path) as broker:
        broker.ask(led(topic("t", partition(0))), 7)

`FakeSession` stands in for kazoo's half of the plane; all else is what `tidelog serve` runs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from tests.broker.cluster.zookeeper_requests import broker as live
from tests.broker.cluster.zookeeper_requests import metadata
from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog.broker.cluster.startup import manager_of, serving
from tidelog.broker.cluster.zookeeper import zookeeper_plane
from tidelog.broker.cluster.zookeeper.session import Znode, until
from tidelog.broker.settings.server_properties import sort_properties
from tidelog.clock import Clock, SystemClock
from tidelog.errors import BrokerUnreachableError
from tidelog.wire.fields import Message

NODE_ID = 1

T = TypeVar("T")


class FakeZookeeper:
    """The znodes, by their paths. From any thread."""

    def __init__(self) -> None:
        self.znodes: dict[str, Znode] = {}
        self.is_away = False
        """Whether whatever is asked for fails, as where no server answers."""
        self.held = threading.Event()
        """Cleared: nothing is answered until it is set, as by a server that is slow."""
        self.after_read: Callable[[str], object] = lambda path: None
        """Called with the path of each znode that was read."""
        self.held.set()
        self._ids = itertools.count(1)
        self._watches: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def next_id(self) -> int:
        return next(self._ids)

    def put(self, path: str, value: object, *, owner: int = 0) -> None:
        """Make or change a znode; `value` is bytes, or becomes JSON."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        with self._lock:
            known = self.znodes.get(path)
            self.znodes[path] = (
                Znode(data, 0, self.next_id(), owner) if known is None else known._replace(data=data, version=known.version + 1)
            )
        self._tell()

    def remove(self, path: str) -> None:
        with self._lock:
            self.znodes.pop(path, None)
        self._tell()

    def children(self, path: str) -> list[str]:
        with self._lock:
            found = {one[len(path) + 1 :].split("/")[0] for one in self.znodes if one.startswith(f"{path}/")}
        return sorted(found)

    def watch(self, tell: Callable[[], object]) -> None:
        with self._lock:
            self._watches.append(tell)

    def _tell(self) -> None:
        with self._lock:
            told, self._watches = self._watches, []
        for tell in told:
            tell()


class FakeSession:
    """`Session` with a `FakeZookeeper`."""

    def __init__(self, zookeeper: FakeZookeeper, connect: str, on_session: Callable[[], None]) -> None:
        self.zookeeper = zookeeper
        self.servers = connect
        self.session_id = zookeeper.next_id()
        self._on_session = on_session
        self._loop = asyncio.get_running_loop()

    async def start(self, timeout_s: float, waiting: Callable[[], None] = lambda: None) -> None:
        await self._answers()

    async def close(self) -> None:
        for path, znode in list(self.zookeeper.znodes.items()):
            if znode.owner == self.session_id:
                self.zookeeper.remove(path)

    async def get(self, path: str, watch: asyncio.Event | None = None) -> Znode | None:
        await self._answers()
        self._watch(watch)
        found = self.zookeeper.znodes.get(path)
        self.zookeeper.after_read(path)
        return found

    async def children(self, path: str, watch: asyncio.Event | None = None) -> list[str]:
        await self._answers()
        self._watch(watch)
        return self.zookeeper.children(path)

    async def set(self, path: str, data: bytes, version: int) -> int | None:
        await self._answers()
        known = self.zookeeper.znodes.get(path)
        if known is None or known.version != version:
            return None
        self.zookeeper.put(path, data)
        return version + 1

    async def create(self, path: str, data: bytes, *, is_ephemeral: bool = False, is_sequence: bool = False) -> bool:
        await self._answers()
        path = f"{path}{self.zookeeper.next_id():010d}" if is_sequence else path
        if path in self.zookeeper.znodes:
            return False
        self.zookeeper.put(path, data, owner=self.session_id if is_ephemeral else 0)
        return True

    async def follow(self, path: str, changed: Callable[[Znode | None], Any]) -> None:
        while True:
            event = asyncio.Event()
            changed(await self.get(path, event))
            await until(event)

    async def _answers(self) -> None:
        while not self.zookeeper.held.is_set():
            await asyncio.sleep(0.001)
        if self.zookeeper.is_away:
            raise BrokerUnreachableError("the connection was lost", path=f"ZooKeeper at {self.servers}")

    def _watch(self, event: asyncio.Event | None) -> None:
        if event is not None:
            self.zookeeper.watch(lambda: self._loop.is_closed() or self._loop.call_soon_threadsafe(event.set))


class ControlledBroker(RunningBroker):
    """Broker 1 of a cluster of ZooKeeper's. It is started once the test, as its controller, has told which brokers there are."""

    def __init__(self, data_dir: Path, zookeeper: FakeZookeeper, clock: Clock, **properties: Any) -> None:
        self.zookeeper = zookeeper
        given = {"broker.id": str(NODE_ID), "zookeeper.connect": "zk:2181", "inter.broker.protocol.version": "2.4"}
        super().__init__(data_dir, clock, **{**given, **properties})

    def start(self) -> None:
        self._run_thread()

    async def _serve(self) -> None:
        def session(connect: str, timeout_s: float, on_session: Callable[[], None], on_loss: object) -> FakeSession:
            self.session = FakeSession(self.zookeeper, connect, on_session)
            return self.session

        sorted_ones = sort_properties(self.properties, topic_names=True)
        manager = manager_of(self.data_dir, self.clock, sorted_ones.config, sorted_ones.manager)
        try:
            with patch.object(zookeeper_plane, "Session", session):
                entered = serving(manager, sorted_ones.config, self.clock, apis=self.apis)
                async with entered as self.running:
                    self.is_started.set()
                    await self._stop.wait()
        finally:
            self.is_clean = manager.shutdown()

    @property
    def port(self) -> int:
        """Where it listens, as it has registered."""
        return int(json.loads(self.zookeeper.znodes[f"/brokers/ids/{NODE_ID}"].data)["port"])

    def begin(self) -> None:
        """Tell it that it is the only broker, and wait until it serves."""
        wait_until(
            lambda: f"/brokers/ids/{NODE_ID}" in self.zookeeper.znodes or self.is_started.is_set(), "its znode", PATIENCE_S
        )
        if not self.is_started.is_set():
            self.connect()
            self.ask(metadata([live(NODE_ID, self.port)], []), 6)
        assert self.is_started.wait(PATIENCE_S)
        if self._failure is not None and self._thread is not None:
            self._thread.join(PATIENCE_S)
        self._raise_failure()

    def connect(self) -> None:
        """Connect to it as its controller does; once more, where that is lost."""
        if hasattr(self, "controller"):
            self.controller.close()
        self.controller = RawClient(("127.0.0.1", self.port))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on its loop, and return what it returns."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def ask(self, request: Message, version: int) -> Any:
        """Ask it as its controller does."""
        return self.controller.ask(request, version)

    def stop(self) -> None:
        if hasattr(self, "controller"):
            self.controller.close()
        if self._failure is None and self._thread is not None and self._thread.is_alive():
            super().stop()


@contextmanager
def controlled(folder: Path, zookeeper: FakeZookeeper | None = None, **properties: Any) -> Iterator[ControlledBroker]:
    """A broker that serves; properties are Kafka's with `_` for `.`."""
    properties.setdefault("controlled_shutdown_enable", "false")
    broker = ControlledBroker(folder / "data", zookeeper or FakeZookeeper(), SystemClock(), **properties)
    try:
        broker.begin()
        yield broker
    finally:
        broker.stop()
