"""Ports before the controllers, for each broker its own, so that one can be cut off from them and no other.

A broker knows the controllers by its ports; they know each other by their own. While a broker is cut off, what it sends and what
is sent to it stays where it is, and its new connections are accepted by nobody: as with packets that a network drops.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self

from tests.kafka.java import free_port

HOST = "127.0.0.1"
LOOK_S = 0.02
CHUNK = 1 << 16


class Route(NamedTuple):
    """How a broker reaches a controller: by which port, and where that leads."""

    broker: int
    port: int
    controller: int


class ControllerProxies:
    """Proxies between `brokers` (ids) and controllers (their ports), until the block's end."""

    def __init__(self, brokers: Iterable[int], controllers: Iterable[int]) -> None:
        ports = list(controllers)
        self._routes = [Route(broker, free_port(), port) for broker in brokers for port in ports]
        self._cut: frozenset[int] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)

    def ports(self, broker: int) -> list[int]:
        """Return where a broker finds the controllers, in their order."""
        return [route.port for route in self._routes if route.broker == broker]

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut_off(self, *brokers: int) -> None:
        """Cut off these brokers, and none else."""
        self._cut = frozenset(brokers)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for route in self._routes:
            self._loop.run_until_complete(asyncio.start_server(self._accept(route), HOST, route.port, limit=CHUNK))
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _accept(self, route: Route) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._wait(route.broker)
            try:
                far_reader, far_writer = await asyncio.open_connection(HOST, route.controller, limit=CHUNK)
            except OSError:
                writer.transport.abort()
                return
            await asyncio.gather(self._pump(route.broker, reader, far_writer), self._pump(route.broker, far_reader, writer))

        return accepted

    async def _pump(self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._wait(broker)
                writer.write(data)
                await writer.drain()
        await self._wait(broker)
        writer.close()

    async def _wait(self, broker: int) -> None:
        while broker in self._cut:
            await asyncio.sleep(LOOK_S)
