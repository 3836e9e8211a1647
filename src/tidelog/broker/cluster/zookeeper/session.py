"""A ZooKeeper client for the event loop: kazoo's threads do the I/O and post results to the loop.

kazoo reconnects, and opens a new session after one has expired. Calls made in between raise BrokerUnreachableError. Watches
report each lost connection, so that `follow` reads its znode again. An expired session removes the broker's registration;
`on_session` is called with each new session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.errors import BrokerUnreachableError, TidelogError
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

RETRY_S = 0.2
PATIENT_S = 1.0
"""If connecting takes longer than this (seconds), it is logged."""
AGAIN_S = 30.0
"""A followed znode is read again after this time (seconds) even if its watch has not fired."""

_LOST = (ConnectionLoss, SessionExpiredError, ConnectionClosedError, KazooTimeoutError)


class Znode(NamedTuple):
    """A znode: its content, its version, the id of the transaction that created it, and the session that owns it (0 for none)."""

    data: bytes
    version: int
    czxid: int
    owner: int


class Session:
    """A ZooKeeper session. `on_session` is called on the loop with each session after the first."""

    def __init__(self, connect: str, timeout_s: float, on_session: Callable[[], None], on_loss: Callable[[], None]) -> None:
        self.servers = connect
        self._on_session = on_session
        self._on_loss = on_loss
        self._loop = asyncio.get_running_loop()
        self._is_lost = False
        self._is_closed = False
        self._log = RetryLog(logger)
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=2)
        quiet = logging.getLogger("tidelog.zookeeper")
        quiet.setLevel(logging.ERROR)
        self._client = KazooClient(
            hosts=connect, timeout=timeout_s, connection_retry=retry, command_retry=KazooRetry(max_tries=1), logger=quiet
        )
        self._client.add_listener(self._changed)

    async def start(self, timeout_s: float, waiting: Callable[[], None] = lambda: None) -> None:
        """Open a session; call `waiting` if that takes long. Raises BrokerUnreachableError after the timeout.

        A read-only server counts as unreachable.
        """
        event = self._client.start_async()
        said = self._loop.call_later(PATIENT_S, waiting)
        # kazoo's event is a threading.Event, so it is polled.
        try:
            async with asyncio.timeout(timeout_s):
                while not event.is_set():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self.close()
            raise BrokerUnreachableError(
                f"no server answered within {timeout_s:g} s", path=f"ZooKeeper at {self.servers}"
            ) from None
        finally:
            said.cancel()

    async def close(self) -> None:
        """Close the session, which removes its ephemeral znodes. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with contextlib.suppress(KazooException):
            self._client.stop()
            self._client.close()

    @property
    def session_id(self) -> int:
        """The session id, which ephemeral znodes have as their owner."""
        found = self._client.client_id
        return 0 if found is None else int(found[0])

    # --- znodes

    async def get(self, path: str, watch: asyncio.Event | None = None) -> Znode | None:
        """Return a znode, or None if it does not exist. `watch` is set when the znode changes or the connection is lost."""
        try:
            data, stat = await self._done(self._client.get_async(path, watch=self._watcher(watch)))
        except NoNodeError:
            if watch is None or await self._done(self._client.exists_async(path, watch=self._watcher(watch))) is None:
                return None
            return await self.get(path, watch)
        return Znode(data, stat.version, stat.czxid, stat.ephemeralOwner)

    async def children(self, path: str, watch: asyncio.Event | None = None) -> list[str]:
        """Return the names of a znode's children; an empty list if the znode does not exist."""
        try:
            return list(await self._done(self._client.get_children_async(path, watch=self._watcher(watch))))
        except NoNodeError:
            return []

    async def set(self, path: str, data: bytes, version: int) -> int | None:
        """Write a znode if it has the given version. Return its new version, or None if it was changed in the meantime."""
        try:
            return int((await self._done(self._client.set_async(path, data, version=version))).version)
        except (BadVersionError, NoNodeError):
            return None

    async def create(self, path: str, data: bytes, *, is_ephemeral: bool = False, is_sequence: bool = False) -> bool:
        """Create a znode and its parents. Return False if it exists."""
        making = self._client.create_async(path, data, ephemeral=is_ephemeral, sequence=is_sequence, makepath=True)
        try:
            await self._done(making)
        except NodeExistsError:
            return False
        return True

    async def follow(self, path: str, changed: Callable[[Znode | None], Any]) -> None:
        """Call `changed` with a znode now and on every change, until cancelled."""
        while True:
            event = asyncio.Event()
            try:
                changed(await self.get(path, event))
                await until(event)
            except BrokerUnreachableError:  # The loss of the connection is logged elsewhere.
                await asyncio.sleep(RETRY_S)
            except TidelogError as error:
                self._log.failed("cannot follow the znode %s, retrying: %s", path, error)
                await asyncio.sleep(RETRY_S)

    # --- inside

    def _watcher(self, event: asyncio.Event | None) -> Callable[[Any], None] | None:
        if event is None:
            return None

        def seen(_: Any) -> None:
            self._post(event.set)

        return seen

    async def _done(self, result: Any) -> Any:
        """Return kazoo's result. Raises BrokerUnreachableError for a lost connection, kazoo's NoNodeError, BadVersionError and
        NodeExistsError, and ZookeeperError for any other error.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            if not future.done():
                if result.exception is None:
                    future.set_result(result.value)
                else:
                    future.set_exception(result.exception)

        result.rawlink(lambda _: self._post(settle))
        try:
            return await future
        except _LOST as error:
            reason = type(error).__name__
            raise BrokerUnreachableError(f"the connection was lost ({reason})", path=f"ZooKeeper at {self.servers}") from None
        except (NoNodeError, BadVersionError, NodeExistsError):
            raise
        except KazooException as error:
            raise ZookeeperError(f"ZooKeeper refused an operation: {type(error).__name__} {error}", path=self.servers) from None

    def _changed(self, state: str) -> None:
        self._post(lambda: self._moved(state))

    def _moved(self, state: str) -> None:
        if self._is_closed:
            return
        if state == KazooState.LOST:
            self._is_lost = True
            logger.warning("the session with ZooKeeper (%s) is lost: the broker is no longer registered", self.servers)
            self._on_loss()
        elif state == KazooState.SUSPENDED:
            self._log.failed("the connection to ZooKeeper (%s) is lost, reconnecting", self.servers)
        elif self._is_lost:
            self._is_lost = False
            logger.info("opened a new session with ZooKeeper (%s)", self.servers)
            self._on_session()
        else:
            self._log.works("connected to ZooKeeper (%s) again", self.servers)

    def _post(self, call: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(call)


class ZookeeperError(TidelogError):
    """ZooKeeper refused an operation."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


async def until(event: asyncio.Event) -> None:
    """Wait for a watch to fire, at most `AGAIN_S`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_S):
            await event.wait()
