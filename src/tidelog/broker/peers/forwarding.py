"""Forwards clients' requests to the controllers, and the responses back, unchanged (KIP-590, Kafka's ForwardingManager).

| the controller | the client gets |
|---|---|
| answers | its response, byte for byte |
| does not support that version (after a change of controller) | a closed connection, so that it negotiates versions again |
| refuses the envelope, or sends a response to a different request | UNKNOWN_SERVER_ERROR |
| does not answer for `TIMEOUT_S`, or no controller leads | REQUEST_TIMED_OUT, after which clients retry |

Each request has its own task, so no client waits for another client's request. At most `MAX_BYTES` of requests are in flight;
others wait, at most until their timeout. If a client disconnects, its request is dropped here; the controller may still execute
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from tidelog.broker.loop.owned_tasks import OwnedTasks
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.loop.timers import Blocking
from tidelog.broker.peers.forwarded_apis import Forwarded
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.request import Request
from tidelog.errors import BrokerUnreachableError, InvalidArgumentError, ProtocolError, TidelogError, UnsupportedVersionError
from tidelog.wire.codec import Bytes, decoder
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import read_request_header, response_chunks

logger = logging.getLogger("tidelog.broker")

TIMEOUT_S = 20.0
"""Clients wait 30 s for a response and a minute for an operation (`request.timeout.ms`, `default.api.timeout.ms`). They get this
timeout's error early enough for a retry.
"""

MAX_BYTES = 64 << 20

MAX_REQUEST_BYTES = 16 << 20
"""A larger request is not forwarded: it would be copied on the loop."""

WHY = {ErrorCode.REQUEST_TIMED_OUT: "no controller has answered in time"}

Chunks = list[Bytes]
Answered = Callable[[Chunks | None], None]
"""Called once with the response's bytes including the size prefix, or with None to close the connection."""


class Forwarding:
    """Forwards requests to the active controller. Use only on the event loop's thread."""

    def __init__(self, plane: MetadataPlane, heavy: Blocking) -> None:
        self._plane = plane
        self._heavy = heavy
        self._tasks = OwnedTasks()
        self._log = RetryLog(logger)
        self._bytes = 0
        self._room = asyncio.Event()

    def begin(self, api: Forwarded, version: int, frame: Bytes, client: Request, answered: Answered) -> Callable[[], None]:
        """Forward a request's frame (with its header, without the size) and return a function that cancels it. If it is
        cancelled, `answered` gets None.
        """

        def over(task: asyncio.Task[Chunks | None]) -> None:
            answered(None if task.cancelled() else task.result())

        task = self._tasks.begin(self._answer(api, version, frame, client), f"tidelog-forwarding {api.name}")
        task.add_done_callback(over)

        def give_up() -> None:
            task.cancel()

        return give_up

    async def _answer(self, api: Forwarded, version: int, frame: Bytes, client: Request) -> Chunks | None:
        try:
            answer = await self.forward(frame, client)
            if bytes(answer[:4]) != bytes(frame[4:8]):
                raise ProtocolError("the controller answered a different request")
            self._log.works("a controller answers requests again")
            return [len(answer).to_bytes(4, "big") + answer]
        except UnsupportedVersionError as error:
            self._log.failed("%s version %d: the client must request ApiVersions again: %s", api.name, version, error)
            return None
        except TidelogError as error:
            self._log.failed("no controller has answered %s version %d: %s", api.name, version, error)
            code = code_of(error)
        if api.request is None or api.refuse is None:
            return None
        return await self._elsewhere(partial(_refusal, api, version, frame, code))

    async def _elsewhere(self, work: Callable[[], Chunks]) -> Chunks | None:
        done: asyncio.Future[Chunks | None] = asyncio.get_running_loop().create_future()

        def take(chunks: Chunks | BaseException) -> None:
            if not done.done():
                done.set_result(None if isinstance(chunks, BaseException) else chunks)

        self._heavy.run(work, take)
        return await done

    def send(self, frame: Bytes, client: Request, done: Callable[[bytes | TidelogError], object]) -> None:
        """Call `done` once with the controller's response to a frame, or with the error that `forward` raises."""

        async def sent() -> None:
            try:
                answer: bytes | TidelogError = await self.forward(frame, client)
            except TidelogError as error:
                answer = error
            done(answer)

        self._tasks.begin(sent(), "tidelog-forwarding")

    async def forward(self, frame: Bytes, client: Request) -> bytes:
        """Return the controller's response to a frame. Raises InvalidArgumentError for a frame that is too large, and what
        `MetadataPlane.forward` raises.
        """
        size = len(frame)
        if size > MAX_REQUEST_BYTES:
            raise InvalidArgumentError(
                "the request is too large to be forwarded to the controller",
                found=size,
                expected=f"at most {MAX_REQUEST_BYTES} bytes",
            )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TIMEOUT_S
        try:
            async with asyncio.timeout_at(deadline):
                while self._bytes and self._bytes + size > MAX_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise BrokerUnreachableError("too many requests are waiting for the controller", path="controller") from None
        self._bytes += size
        try:
            return await self._plane.forward(
                frame,
                client_host=client.peer_host,
                principal=client.principal,
                timeout_s=max(deadline - loop.time(), 0.0),
            )
        finally:
            self._bytes -= size
            self._room.set()

    def stop(self) -> None:
        self._tasks.cancel()


def code_of(error: TidelogError) -> ErrorCode:
    """Return the error code for a client whose request could not be forwarded because of `error`."""
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(error, BrokerUnreachableError) else ErrorCode.UNKNOWN_SERVER_ERROR


def _refusal(api: Forwarded, version: int, frame: Bytes, code: ErrorCode) -> Chunks:
    """Return the error response to a frame. Raises ProtocolError if the frame is not a request."""
    assert api.request is not None and api.refuse is not None
    header, position = read_request_header(frame)
    message = decoder(api.request, version, exact=False)(frame, position)
    response = api.refuse(message, code, WHY.get(code, "the controller refuses to answer this request"))
    return response_chunks(response, version, header.correlation_id)
