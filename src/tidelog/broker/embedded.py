"""A broker inside a Python process: `tidelog.Broker`. For tests, notebooks, and programs that bring their own.

    with tidelog.Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

| argument | |
|---|---|
| `data_dir` | the folder; made where it is missing; without one a temporary folder, which is removed at the end |
| `port` | on 127.0.0.1; 0 any free one, which it keeps when it is stopped and started again |
| `clock` | the machine's, or a `ManualClock`: each `advance` does what has become due, before it returns |
| all others | a broker's or a topic's properties by Kafka's names, `log_retention_ms=1000` or `**{"log.retention.ms": 1000}` |

The broker runs on a thread of its own, with a loop of its own: whatever the program does, clients are served, as far as Python's
one lock allows. Methods may be called from any thread.

`stop` ends cleanly; `kill` leaves the folder as a process does that is killed, so that a test can see what the next start makes
of it. `start` starts again after either, on the same folder. `with` starts, and stops.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tidelog.broker.listeners import Listener, joined, loopback
from tidelog.broker.running import Running, running
from tidelog.broker.server_properties import sort_properties
from tidelog.clock import Clock, ManualClock, SystemClock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError
from tidelog.storage.log_manager import LogManager

T = TypeVar("T")


class Broker:
    """See the module. Raises InvalidArgumentError for a property that is none, or a bad value."""

    def __init__(
        self,
        data_dir: str | Path | None = None,
        port: int = 0,
        clock: Clock | None = None,
        **kafka_properties: PropertyValue | None,
    ) -> None:
        given = {
            name if "." in name else name.replace("_", "."): value
            for name, value in kafka_properties.items()
            if value is not None
        }
        self._properties = sort_properties(given, topic_names=True)
        if self._properties.unknown:
            raise InvalidArgumentError("no property of a broker or a topic", found=", ".join(self._properties.unknown))
        self._clock = clock or SystemClock()
        has_listeners = any(name in given for name in ("listeners", "advertised.listeners", "port", "host.name"))
        self._listeners = self._properties.config.listeners if has_listeners else (loopback(port),)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        folder = data_dir or self._properties.config.log_dir
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidelog-")
            folder = Path(self._temporary.name) / "data"
        self.data_dir = Path(folder)
        self._serving: _Serving | None = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._remove_temporary()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self._remove_temporary()

    def __repr__(self) -> str:
        where = self.bootstrap_servers if self.is_running else "not running"
        return f"<Broker {where}, {self.data_dir}>"

    # --- start and stop

    def start(self) -> Self:
        """Serve; returns once clients are served. Raises what `LogManager.startup` raises, InvalidArgumentError for an address.

        Raises InvalidArgumentError, too, where it is running already.
        """
        if self._serving is not None:
            raise InvalidArgumentError("the broker is running", path=self.data_dir)
        serving = _Serving(self)
        self._listeners = serving.started.result()
        self._serving = serving
        return self

    def stop(self) -> bool:
        """End cleanly: answer what was begun, flush, write the clean-shutdown file; whether that worked. Twice is no error."""
        return self._end(is_clean=True)

    def kill(self) -> None:
        """End at once, and leave the folder as a process does that is killed: the next start recovers."""
        self._end(is_clean=False)

    @property
    def is_running(self) -> bool:
        """Whether clients are served."""
        return self._serving is not None

    # --- asking

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for clients; of the first listener, where there are several."""
        listener = self._listeners[0]
        return joined(listener.advertised_host, listener.advertised_port)

    @property
    def port(self) -> int:
        """Where the first listener listens."""
        return self._listeners[0].port

    def tick(self) -> int:
        """Do now what is due by the clock: retention, compaction, deletions; return how many tasks ran.

        It happens by itself, too. A `ManualClock` does this with each `advance`.
        """
        return self.call(Running.tick)

    def call(self, work: Callable[[Running], T]) -> T:
        """Return what `work` returns, called on the broker's own thread: what it owns may be looked at nowhere else."""
        if self._serving is None:
            raise InvalidArgumentError("the broker is not running", path=self.data_dir)
        return self._serving.call(work)

    # --- inside

    def _end(self, *, is_clean: bool) -> bool:
        serving, self._serving = self._serving, None
        return serving.end(is_clean=is_clean) if serving is not None else False

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


class _Serving:
    """One run of a broker, on its thread, from a start to its end."""

    def __init__(self, broker: Broker) -> None:
        self.started: Future[tuple[Listener, ...]] = Future()
        self._ended: Future[bool] = Future()
        self._data_dir = broker.data_dir
        self._properties = broker._properties
        self._listeners = broker._listeners
        self._clock = broker._clock
        self._is_clean = True
        self._running: Running | None = None
        self._running_guard = threading.Lock()  # What was asked for while there is a broker is answered.
        self._thread = threading.Thread(target=self._run, name="tidelog-broker", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[Running], T]) -> T:
        if threading.current_thread() is self._thread:
            return work(self._here())
        result: Future[T] = Future()

        def on_loop() -> None:
            try:
                result.set_result(work(self._here()))
            except BaseException as error:
                result.set_exception(error)

        with self._running_guard:
            self._here()
            self._loop.call_soon_threadsafe(on_loop)
        return result.result()

    def tick_if_running(self) -> None:
        with suppress(InvalidArgumentError):
            self.call(Running.tick)

    def end(self, *, is_clean: bool) -> bool:
        self._is_clean = is_clean
        try:
            with suppress(InvalidArgumentError, RuntimeError):  # It has ended by itself: the result says why.
                if not is_clean:
                    self.call(_drop_connections)
                self._loop.call_soon_threadsafe(self._stop.set)
            return self._ended.result()
        finally:
            self._thread.join()

    def _here(self) -> Running:
        if self._running is None:
            raise InvalidArgumentError("the broker is not running", path=self._data_dir)
        return self._running

    def _run(self) -> None:
        try:
            self._ended.set_result(asyncio.run(self._serve()))
        except BaseException as error:
            (self._ended if self.started.done() else self.started).set_exception(error)

    async def _serve(self) -> bool:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        config = replace(self._properties.config, listeners=self._listeners)
        manager = LogManager(self._data_dir, self._clock, properties=self._properties.manager)
        manager.startup()
        try:
            async with running(manager, config, self._clock) as self._running:
                forget = self._clock.listen(self.tick_if_running) if isinstance(self._clock, ManualClock) else None
                self.started.set_result(self._running.listeners)
                await self._stop.wait()
                if forget is not None:
                    forget()
                with self._running_guard:
                    self._running = None
                await asyncio.sleep(0)  # Calls that came before have their turn.
        finally:
            is_clean = manager.shutdown() if self._is_clean else False
            manager.let_go()
        return is_clean


def _drop_connections(broker: Running) -> None:
    for connection in tuple(broker.server.connections.values()):
        connection.close()
