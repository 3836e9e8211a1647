"""Ports before the controllers, so that one broker can be cut off from them and no other.

All nodes know the controllers by the proxies' ports. Who connects is seen by the process that owns the connection's other end.
While a process is cut off, what it sends and what is sent to it stays where it is, and its new connections are accepted by
nobody: as with packets that a network drops.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
LOOK_S = 0.02
CHUNK = 1 << 16


class ControllerProxies:
    """A proxy for each of `routes` (port of the proxy, port of the controller), until the block's end.

    `processes` returns the ids of the processes that may be cut off.
    """

    def __init__(self, routes: Mapping[int, int], processes: Callable[[], Iterable[int]]) -> None:
        self._routes = routes
        self._processes = processes
        self._cut: frozenset[int] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def cut_off(self, *processes: int) -> None:
        """Cut off these processes, and none else."""
        self._cut = frozenset(processes)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for port, controller in self._routes.items():
            self._loop.run_until_complete(asyncio.start_server(self._accept(controller), HOST, port, limit=CHUNK))
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _accept(self, controller: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            process = owner(writer.get_extra_info("peername")[1], self._processes())
            await self._wait(process)
            try:
                far_reader, far_writer = await asyncio.open_connection(HOST, controller, limit=CHUNK)
            except OSError:
                writer.transport.abort()
                return
            await asyncio.gather(self._pump(process, reader, far_writer), self._pump(process, far_reader, writer))

        return accepted

    async def _pump(self, process: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._wait(process)
                writer.write(data)
                await writer.drain()
        await self._wait(process)
        writer.close()

    async def _wait(self, process: int | None) -> None:
        while process in self._cut:
            await asyncio.sleep(LOOK_S)


def owner(port: int, processes: Iterable[int]) -> int | None:
    """Return which of the processes has the TCP socket that is bound to this local port of 127.0.0.1; None: none has."""
    wanted = f"0100007F:{port:04X}"
    inodes = {
        f"socket:[{fields[9]}]"
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines())
        if fields[1] == wanted
    }
    for process in processes:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(path.readlink()) in inodes:
                        return process
    return None
