"""A client's request that a broker forwards in an Envelope (KIP-590). It is answered like a request from a connection."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

from tidelog.broker.dispatch.dispatcher import Dispatcher
from tidelog.broker.dispatch.served_api import ServedApi
from tidelog.broker.requests.request import Outcome, Request, Wide
from tidelog.security.principal import Principal
from tidelog.wire.codec import Bytes, Message


class EnvelopedRequest:
    """The request in the envelope `outer`, from a client at `peer_host`. `done` is called with the frame of the response, or None
    if there is no response.
    """

    def __init__(self, outer: Request, principal: Principal, peer_host: str, done: Callable[[bytes | None], None]) -> None:
        self.served: ServedApi | None = None
        self.principal = principal
        self.peer_host = peer_host
        self.connection_id = outer.connection_id
        self.listener = outer.listener
        self.started_ns = perf_counter_ns()
        self.busy_ns = 0
        self.api_version = 0
        self.correlation_id = 0
        self.request_bytes = 0
        self.client_id: str | None = None
        self.client_id_bytes = b""
        self.client_id_length = -2
        self.header_bytes = 10
        self.is_waiting = False
        self._outer = outer
        self._done = done

    def __str__(self) -> str:
        return f"a request in an envelope of {self._outer}"

    def begin(self, dispatcher: Dispatcher, frame: bytes) -> None:
        """Answer the request with this frame, now or later."""
        self.request_bytes = len(frame)
        self.is_waiting = True
        answer = dispatcher.handle(self, memoryview(bytearray(frame)), 0, len(frame))
        if isinstance(answer, Outcome):
            if answer is not Outcome.LATER:
                self._finish(None)
        else:
            self.respond_chunks(answer)

    @property
    def api_name(self) -> str:
        return "nothing" if self.served is None else self.served.metrics.name

    def mute(self, throttle_ms: int) -> None:
        """Do nothing: the broker reads the throttle time from the response."""

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection of the envelope is lost before the response is sent."""
        self._outer.when_gone(callback)

    def keep_frame(self, data: memoryview, position: int, end: int) -> memoryview:
        """Return a view of the frame: its buffer is never overwritten."""
        return data[position:end]

    def discount(self, size: int) -> None:
        """Do nothing: the bytes are counted with the envelope."""

    def respond(self, response: Message | Wide | Outcome, *, is_wide: bool = False) -> None:
        if isinstance(response, Outcome):
            if response is not Outcome.LATER:
                self._finish(None)
            return
        assert self.served is not None
        self.respond_chunks(self.served.finish(response.response if isinstance(response, Wide) else response, self))

    def respond_chunks(self, chunks: list[Bytes]) -> None:
        """Send the encoded bytes of a response, without the size in front of the frame."""
        self._finish(b"".join(chunks)[4:])

    def _finish(self, frame: bytes | None) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._done(frame)
