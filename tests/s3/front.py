"""A proxy before an S3 server: it counts requests and bytes, delays requests, and makes some of them fail.

Clients speak HTTP/1.1 to it. It forwards the Host header as it is, so that signatures stay valid.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.s3.requests import Answer, Body, Fault, Request, ResetError

_CHUNK_BYTES = 1 << 18
_Result = TypeVar("_Result")


@dataclass
class _Rule:
    fault: Fault
    matches: Callable[[Request], bool]
    left: int


class Front:
    """The proxy, on a thread of its own, at `port` of 127.0.0.1."""

    def __init__(self, upstream_port: int) -> None:
        self.requests: list[Request] = []
        """Those that were answered, or failed, since the last `clear`."""
        self.latency_s = 0.0
        """How long each request waits before it is forwarded."""
        self.most_in_flight = 0
        """The largest number of requests at a time since the last `clear`."""
        self._in_flight = 0
        self._rules: list[_Rule] = []
        self._upstream = upstream_port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3-front", daemon=True)
        self._thread.start()
        self._server = self._run(self._serve())
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def clear(self) -> None:
        """Forget requests, faults and latency."""
        self._rules, self.requests, self.latency_s, self.most_in_flight = [], [], 0.0, 0

    def fail(self, fault: Fault, kind: str = "GET", *, key: str = "", times: int = 1 << 30, after: int = 0) -> None:
        """Let a fault decide about the next `times` requests of a kind whose keys contain `key`, after the first `after`."""
        passed = [after]

        def matches(request: Request) -> bool:
            if request.kind != kind or key not in request.key:
                return False
            passed[0] -= 1
            return passed[0] < 0

        self._rules.append(_Rule(fault, matches, times))

    def count(self, kind: str | None = None, key: str = "") -> int:
        """Return the number of requests of a kind (default: of all kinds) whose keys contain `key`."""
        return sum(kind in (None, one.kind) and key in one.key for one in self.requests)

    def counts(self) -> Counter[str]:
        """Return the number of requests by kind."""
        return Counter(one.kind for one in self.requests)

    def sent_bytes(self, key: str = "", kind: str = "GET") -> int:
        """Return the number of bytes in the answers to requests of a kind whose keys contain `key`."""
        return sum(one.sent_bytes for one in self.requests if one.kind == kind and key in one.key)

    @contextlib.contextmanager
    def measured(self) -> Iterator[Front]:
        """Clear before and after a block, in which the requests of its clients are counted."""
        self.clear()
        try:
            yield self
        finally:
            self.clear()

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for _, writer in self._idle:
                writer.close()

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=_CHUNK_BYTES)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while (head := await _head(reader)) is not None:
                method, target, _ = head[0].split(" ", 2)
                request = Request(method, target, _fields(head[1:]))
                body = await reader.readexactly(int(request.headers.get("content-length", 0)))
                self._in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self._in_flight)
                self.requests.append(request)
                try:
                    if self.latency_s:
                        await asyncio.sleep(self.latency_s)
                    await self._answer(request, head, body, writer)
                except ResetError:
                    writer.transport.abort()
                    return
                finally:
                    self._in_flight -= 1
        writer.close()

    def _decision(self, request: Request) -> Answer | Body | None:
        for rule in self._rules:
            if rule.left > 0 and rule.matches(request):
                rule.left -= 1
                return rule.fault(request)
        return None

    async def _answer(self, request: Request, head: list[str], body: bytes, writer: asyncio.StreamWriter) -> None:
        # A fault may itself ask the server for something: it must not run on this loop.
        decision = await self._loop.run_in_executor(None, self._decision, request) if self._rules else None
        if isinstance(decision, Answer):
            fields = {**decision.headers, "content-length": str(len(decision.body))}
            lines = [f"HTTP/1.1 {decision.status} X", *(f"{name}: {value}" for name, value in fields.items())]
            body = decision.body[: len(decision.body) // 2] if decision.is_cut else decision.body
            writer.write("\r\n".join((*lines, "", "")).encode() + body)
            request.status, request.sent_bytes = decision.status, len(body)
            await writer.drain()
            if decision.is_cut:
                raise ResetError
            return
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()  # The server ended it meanwhile.
        upstream = (
            self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._upstream, limit=_CHUNK_BYTES)
        )
        try:
            lines = [head[0], *(line for line in head[1:] if not line.lower().startswith(("connection:", "expect:")))]
            upstream[1].write("\r\n".join((*lines, "", "")).encode("latin-1") + body)
            await self._relay(request, upstream[0], writer, decision or Body())
            self._idle.append(upstream)
        except BaseException:
            upstream[1].close()
            raise

    async def _relay(self, request: Request, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Body) -> None:
        head = await _head(upstream)
        if head is None:
            raise ResetError
        fields = _fields(head[1:])
        request.status = int(head[0].split(" ")[1])
        has_body = request.method != "HEAD" and request.status not in (204, 304)
        if not has_body:
            writer.write("\r\n".join((*head, "", "")).encode("latin-1"))
            await writer.drain()
            return
        length = int(fields["content-length"]) if "content-length" in fields else None
        parts = _chunks(upstream) if length is None else _parts(upstream, length)
        is_ok = request.status < 300
        if length is None or (is_ok and (change.rewrite or change.shortened_by)):
            whole = b"".join([part async for part in parts])
            if is_ok and change.rewrite:
                whole = change.rewrite(whole)
            if is_ok and change.shortened_by:
                whole = whole[: -change.shortened_by]
            length, parts = len(whole), _of(whole)
        lines = [line for line in head if not line.lower().startswith(("content-length:", "transfer-encoding:"))]
        writer.write("\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode("latin-1"))
        left = length if change.cut_after is None or not is_ok else int(length * change.cut_after)
        async for part in parts:
            writer.write(part[:left])
            request.sent_bytes += min(left, len(part))
            left -= len(part)
            await writer.drain()
            if left < 0:
                raise ResetError


async def _head(reader: asyncio.StreamReader) -> list[str] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    return head[:-4].decode("latin-1").split("\r\n")


def _fields(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _parts(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length:
        part = await reader.read(min(length, _CHUNK_BYTES))
        if not part:
            raise ResetError
        length -= len(part)
        yield part


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass


async def _of(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _CHUNK_BYTES):
        yield body[begin : begin + _CHUNK_BYTES]
