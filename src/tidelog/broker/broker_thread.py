"""The thread that runs a `Broker`, with its own event loop.

Other threads use `call`, and stop the broker with `end`. Neither method waits forever: `end` gives up on a disk that does not
answer, and `call` fails if the broker ends first. Neither holds a lock while it waits (see `Reply`), so both may be called from a
signal handler.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any, Generic, TypeVar

from tidelog.broker.cluster.startup import manager_of, serving
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.broker.net.answer_rounds import run
from tidelog.broker.read_only import READ_ONLY_APIS, READ_ONLY_SETTINGS
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.serving_broker import ServingBroker
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.server_properties import ServerProperties
from tidelog.clock import Clock, ManualClock
from tidelog.config import PropertyValue
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.storage.folder import read_only_view
from tidelog.storage.folder.read_only_view import ReadOnlyView
from tidelog.storage.member_log_manager import MemberLogManager

T = TypeVar("T")

STALLED_S = 120.0
"""Seconds without progress after which a shutdown counts as stalled: longer than all its waits except those for the disk."""

DROP_WAIT_S = 10.0
"""How long, in seconds, the program waits for the shutdown of a broker that was garbage-collected. The shutdown continues after
that.
"""

WATCH_S = 1.0


class Reply(Generic[T]):
    """A value or an error from another thread. Only the first call of `give` or `fail` counts; later ones are ignored.

    A `Future` takes its lock in Python code, so a signal handler may run while the waiting thread holds that lock. If the handler
    stops the broker, it waits for the thread that should give the result. With a `Future` both would wait forever.
    """

    def __init__(self) -> None:
        self._given: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()

    def give(self, value: T) -> None:
        """Make `get` return a value."""
        self._given.put((value, None))

    def fail(self, error: BaseException) -> None:
        """Make `get` raise an error."""
        self._given.put((None, error))

    def get(self) -> T:
        """Wait, then return the value or raise the error. Call it once, from one thread."""
        value, error = self._given.get()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]


class BrokerThread:
    """The thread that runs a broker. `started` gets the listeners once clients are served, or the error that prevented the
    start.
    """

    def __init__(
        self,
        data_dir: Path,
        properties: ServerProperties,
        listeners: tuple[Listener, ...],
        clock: Clock,
        *,
        is_read_only: bool,
    ) -> None:
        self.started: Future[tuple[Listener, ...]] = Future()
        self._ended: bool | BaseException | None = None
        self._asked: set[Reply[Any]] = set()
        self._data_dir = data_dir
        self._properties = properties
        self._listeners = listeners
        self._clock = clock
        self._is_read_only = is_read_only
        self._is_clean = True
        self._left_behind: tempfile.TemporaryDirectory[str] | None = None
        self._running: ServingBroker | None = None
        self._moved_at = 0.0
        self._thread = threading.Thread(target=self._run, name="tidelog-broker", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the broker's own thread."""
        return threading.current_thread() is self._thread

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    def call(self, work: Callable[[ServingBroker], T]) -> T:
        """Call `work` on the thread and return its result. Raises InvalidArgumentError if the broker is not running."""
        if self.is_here:
            return work(self._here())
        result: Reply[T] = Reply()

        def on_loop() -> None:
            try:
                result.give(work(self._here()))
            except BaseException as error:
                result.fail(error)

        self._here()
        with self._failing_at_end(result):
            with suppress(RuntimeError):  # The event loop is already closed.
                self._loop.call_soon_threadsafe(on_loop)
            return result.get()

    @contextmanager
    def _failing_at_end(self, reply: Reply[Any]) -> Iterator[None]:
        """While this context is open, `reply` fails with InvalidArgumentError if the broker ends."""
        self._asked.add(reply)
        try:
            if self.is_over:
                reply.fail(self._not_running())
            yield
        finally:
            self._asked.discard(reply)

    def tick_if_running(self) -> None:
        """Run the tasks that are due by the clock, if the broker is running."""
        with suppress(InvalidArgumentError):
            self.call(ServingBroker.tick)

    def end(self, *, is_clean: bool) -> bool:
        """Shut down, wait until that is done, and return whether the shutdown was clean. Any number of other threads may call it.

        Raises StorageError if the shutdown makes no progress for `STALLED_S`, and any error that ended the broker.
        """
        if self.is_here:
            raise InvalidArgumentError("a broker cannot be stopped from its own thread", path=self._data_dir)
        self._moved()
        with suppress(RuntimeError):  # The broker has already ended, and the result says why.
            self._loop.call_soon_threadsafe(self._begin_end, is_clean)
        self._thread.join(WATCH_S)
        while self._thread.is_alive():
            if monotonic() - self._moved_at >= STALLED_S:
                raise StorageError(f"the broker's shutdown has not progressed for {STALLED_S:.0f} s", path=self._data_dir)
            self._thread.join(WATCH_S)
        if isinstance(self._ended, BaseException):
            raise self._ended
        return bool(self._ended)

    def forked(self) -> None:
        """Close a forked process's copies of the broker's sockets, so that they do not keep connections open that the
        broker closes.
        """
        if self._running is not None:
            self._running.server.close_copies()

    def drop(self, temporary: tempfile.TemporaryDirectory[str] | None) -> None:
        """Shut down cleanly, then remove the folder. The garbage collector may call this on any thread, even the broker's."""
        self._left_behind = temporary
        with suppress(RuntimeError):  # The broker has already ended.
            self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(DROP_WAIT_S)

    def _begin_end(self, is_clean: bool) -> None:
        self._is_clean = is_clean
        if not is_clean and self._running is not None:
            for connection in tuple(self._running.server.connections.values()):
                connection.close()
        self._stop.set()

    def _moved(self) -> None:
        self._moved_at = monotonic()

    def _here(self) -> ServingBroker:
        if self._running is None:
            raise self._not_running()
        return self._running

    def _not_running(self) -> InvalidArgumentError:
        return InvalidArgumentError("the broker is not running", path=self._data_dir)

    def _run(self) -> None:
        try:
            self._ended = run(self._serve())
        except BaseException as error:
            self._ended = error
            if not self.started.done():
                self.started.set_exception(error)
        for reply in tuple(self._asked):
            reply.fail(self._not_running())
        if self._left_behind is not None:
            self._left_behind.cleanup()

    async def _serve(self) -> bool:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        config = replace(self._properties.config, listeners=self._listeners)
        if not self._is_read_only:
            return await self._serve_folder(self._data_dir, config, self._properties.manager, APIS)
        with ReadOnlyView(self._data_dir) as view:
            config = replace(config, **READ_ONLY_SETTINGS)
            properties = {**self._properties.manager, **read_only_view.PROPERTIES}
            return await self._serve_folder(view.path, config, properties, READ_ONLY_APIS)

    async def _serve_folder(
        self, folder: Path, config: BrokerConfig, properties: Mapping[str, PropertyValue], apis: tuple[Api, ...]
    ) -> bool:
        manager = manager_of(folder, self._clock, config, properties)
        if not isinstance(manager, MemberLogManager):
            manager.startup()
        try:
            async with serving(manager, config, self._clock, apis=apis) as self._running:
                forget = self._clock.listen(self.tick_if_running) if isinstance(self._clock, ManualClock) else None
                self.started.set_result(self._running.listeners)
                await self._running.until(self._stop)
                if forget is not None:
                    forget()
                self._running = None
        finally:
            is_clean = manager.shutdown(progress=self._moved) if self._is_clean else False
            manager.abort()
        return is_clean
