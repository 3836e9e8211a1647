"""Answers frames: finds the API and version, decodes the request, handles it, and encodes the response.

| a frame that | gets this result |
|---|---|
| has an unknown API or version | its connection is closed |
| is an ApiVersions request of an unknown version | UNSUPPORTED_VERSION in version 0, with the known versions (KIP-511) |
| is malformed | its connection is closed |
| is not authorized | the error that its API defines (`Api.access`), before the handler runs; see `authorization` |
| makes its handler raise an exception | its connection is closed and the error, a bug of the broker, is logged |
| only the controller can answer, on a cluster member | forwarded unchanged: see `peers.forwarding` |
| has many elements | another thread decodes it, and encodes its response: see `slices`, `wide_requests` |
| has more than `FEW_BYTES`, in a round of the loop that is full (`slices`) | decoded in a later round, in turn |

Kafka does the same, except that it answers UNKNOWN_SERVER_ERROR if a handler raises an error and the response has an error field.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from struct import Struct
from time import perf_counter_ns
from types import GeneratorType
from typing import Any

from tidelog.broker import apis as api_modules
from tidelog.broker.apis import api_versions
from tidelog.broker.dispatch.framed_request import FramedRequest
from tidelog.broker.dispatch.served_api import ServedApi
from tidelog.broker.handling.api import Api, apis_in
from tidelog.broker.handling.authorized_handler import Checked
from tidelog.broker.handling.faulty_handler import fails_by_topic
from tidelog.broker.loop.rate_limited_log import RateLimitedLog
from tidelog.broker.node import Node
from tidelog.broker.peers.forwarded_apis import Forwarded, forwarded_with, throttle_ms
from tidelog.broker.requests.request import Outcome, Wide
from tidelog.broker.requests.slices import NOTED_NS
from tidelog.broker.requests.wide_requests import AT_ONCE, FEW_BYTES, discard
from tidelog.errors import ProtocolError, TooManyElementsError
from tidelog.wire.codec import Bytes, Message
from tidelog.wire.headers import read_request_header, response_chunks

logger = logging.getLogger("tidelog.broker")

APIS = apis_in(api_modules.__name__, api_modules.__path__)
"""All served APIs: those of the modules of `apis/`."""


_HEADER = Struct(">iih")
"""The first fields of a request header: API key and version as one number, correlation id, length of the client id."""


class Dispatcher:
    """Answers frames for `node`, with the handlers in `apis`. Use only on the event loop's thread."""

    def __init__(self, node: Node, limited_log: RateLimitedLog, apis: Iterable[Api] = APIS) -> None:
        self._node = node
        self._limited_log = limited_log
        self._forwarded = {} if node.plane is None else forwarded_with(node.plane)
        self._apis = {api.request.API_KEY: api for api in apis if api.request.API_KEY not in self._forwarded}
        self._served: dict[int, ServedApi] = {}
        node.served = {key: api.served for key, api in self._apis.items()}
        node.faults.serve({api.name: fails_by_topic(api) for api in self._apis.values()}, self._served.clear)

    def handle(self, connection: FramedRequest, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        """Return the response to the request in `data[position:end]`, or an Outcome. The request's record bytes may be read and
        changed until this method returns.
        """
        connection.started_ns = perf_counter_ns()
        served = None
        try:
            # A header with the same client id as the last one is read here; `_header` reads all others.
            body = position + connection.header_bytes
            if body < end:
                kind, connection.correlation_id, length = _HEADER.unpack_from(data, position)
                if length == connection.client_id_length and data[position + 10 : body] == connection.client_id_bytes:
                    served = self._served.get(kind)
                    if served is not None and served.is_flexible:
                        if data[body]:
                            served = None
                        body += 1
            if served is None:
                served, body = self._header(connection, data, position, end)
                if served is None:
                    return self._unsupported(connection, body)
            connection.served = served
            connection.api_version = served.version
            if served.usual is not None:
                usual = served.usual.answer(self._node, connection, data, body, end)
                if type(usual) is bytes:
                    took_ns = perf_counter_ns() - connection.started_ns
                    served.metrics.microseconds.record(took_ns // 1000)
                    if took_ns > NOTED_NS:
                        self._node.slices.note(took_ns / 1e9)
                    return [usual]
                if usual is not None:
                    return self._answer(connection, served, usual)
            if end - body > served.bytes_at_once:
                if served.forwarded is not None:
                    return self._forward(connection, served, connection.keep_frame(data, position, end))
                return self._read_elsewhere(connection, served, connection.keep_frame(data, body, end))
            slices = self._node.slices
            if end - body > FEW_BYTES and slices.is_round_full:
                slices.soon(partial(self._read_in_turn, connection, served, connection.keep_frame(data, body, end)))
                return Outcome.LATER
            try:
                message = served.decode(data, body, end, AT_ONCE)
            except TooManyElementsError:
                return self._read_elsewhere(connection, served, connection.keep_frame(data, body, end))
            answer = self._answer(connection, served, served.handle(self._node, message, connection))
            took_ns = perf_counter_ns() - connection.started_ns
            if took_ns > NOTED_NS:
                slices.note(took_ns / 1e9)
            return answer
        except ProtocolError as error:
            return self._refuse(connection, str(error))
        except Exception:
            assert served is not None
            logger.exception("%s version %d of %s failed", served.metrics.name, served.version, connection)
            served.metrics.closed += 1
            return Outcome.CLOSE

    def _answer(self, connection: FramedRequest, served: ServedApi, answer: Any) -> list[Bytes] | Outcome:
        """Return the response bytes for a handler's result, or an Outcome."""
        if type(answer) is GeneratorType:
            answer = self._node.slices.answer(connection, answer)
        if type(answer) is served.response:
            return served.finish(answer, connection)
        if type(answer) is Wide:
            if answer.is_long:
                connection.respond(answer)
                return Outcome.LATER
            return served.finish(answer.response, connection)
        if isinstance(answer, Outcome):
            if answer is Outcome.LATER:
                served.metrics.waited += 1
                if self._node.quotas.counts_time:
                    connection.busy_ns = perf_counter_ns() - connection.started_ns
            elif answer is Outcome.NOTHING:
                if self._node.quotas.is_active:
                    self._node.quotas.throttle(connection, None)
                served.metrics.microseconds.record((perf_counter_ns() - connection.started_ns) // 1000)
            else:
                served.metrics.closed += 1
            return answer
        return served.finish(answer, connection)

    def _read_in_turn(self, connection: FramedRequest, served: ServedApi, frame: memoryview) -> None:
        """Decode and answer a request later, because the round of the loop is full and the request is not among the smallest."""
        connection.started_ns = perf_counter_ns()  # Measure the time from here, because the loop was not busy during the wait.
        message: Message | BaseException
        try:
            message = served.decode(frame, 0, len(frame), AT_ONCE)
        except TooManyElementsError:
            self._read_elsewhere(connection, served, frame)
            return
        except ProtocolError as error:
            message = error
        self._answer_kept(connection, served, message)
        connection.discount(len(frame))
        self._node.slices.note((perf_counter_ns() - connection.started_ns) / 1e9)

    def _read_elsewhere(self, connection: FramedRequest, served: ServedApi, frame: memoryview) -> Outcome:
        """Let another thread decode a request with many elements, then answer it."""

        def go_on(result: Message | Checked | BaseException) -> None:
            def left(_: object) -> None:
                connection.discount(len(frame))
                self._node.wide_requests.leave()

            def leave() -> None:
                self._node.heavy.run(partial(_discard_all, result), left)

            slices = self._node.slices
            slices.when_over = leave
            self._answer_kept(connection, served, result)
            if slices.when_over is not None:
                slices.when_over = None
                leave()

        def read() -> Any:
            message = served.decode(frame)
            return message if served.check is None else served.check(self._node, message, connection)

        def begin() -> None:
            self._node.heavy.run(read, go_on)

        self._node.wide_requests.enter(begin)
        return Outcome.LATER

    def _answer_kept(self, connection: FramedRequest, served: ServedApi, result: Message | Checked | BaseException) -> None:
        """Answer a request whose frame was kept. `result` is the decoded request, or the error from decoding."""
        answer: list[Bytes] | Outcome
        try:
            if isinstance(result, BaseException):
                raise result
            answer = self._answer(connection, served, served.handle(self._node, result, connection))
        except ProtocolError as error:
            answer = self._refuse(connection, str(error))
        except Exception:
            logger.exception("%s version %d of %s failed", served.metrics.name, served.version, connection)
            served.metrics.closed += 1
            answer = Outcome.CLOSE
        if answer is Outcome.NOTHING:
            connection.respond_chunks([])
        elif isinstance(answer, Outcome):
            connection.respond(answer)
        else:
            connection.respond_chunks(answer)

    def _forward(self, connection: FramedRequest, served: ServedApi, frame: memoryview) -> Outcome:
        """Forward the request to the controller."""
        forwarding, forwarded = self._node.forwarding, served.forwarded
        assert forwarded is not None and forwarding is not None

        def answered(chunks: list[Bytes] | None) -> None:
            connection.discount(len(frame))
            if chunks is None:
                served.metrics.closed += 1
                connection.respond(Outcome.CLOSE)
            else:
                served.metrics.microseconds.record((perf_counter_ns() - connection.started_ns) // 1000)
                wait_ms = throttle_ms(forwarded.key, served.version, chunks[0])
                if wait_ms:
                    connection.mute(wait_ms)
                connection.respond_chunks(chunks)

        give_up = forwarding.begin(forwarded, served.version, frame, connection, answered)
        connection.when_gone(give_up)
        served.metrics.waited += 1
        return Outcome.LATER

    def _header(self, connection: FramedRequest, data: memoryview, position: int, end: int) -> tuple[ServedApi | None, int]:
        """Return the API and the position of the request's body. If the broker does not serve the API, return None and the API
        key.

        Raises ProtocolError if the bytes are not a request header.
        """
        header, body = read_request_header(data, position, end)
        kind, _, length = _HEADER.unpack_from(data, position)
        connection.client_id = header.client_id
        connection.client_id_length = length
        connection.header_bytes = 10 + max(length, 0)
        connection.client_id_bytes = bytes(data[position + 10 : position + connection.header_bytes])
        connection.correlation_id = header.correlation_id
        connection.api_version = version = header.api_version
        served = self._served.get(kind)
        if served is None:
            api: Api | Forwarded | None = self._apis.get(header.api_key) or self._forwarded.get(header.api_key)
            if api is None or version not in api.served:
                return None, header.api_key
            metrics = self._node.metrics.api(header.api_key, api.name)
            node = self._node
            served = ServedApi(api, version, metrics, node.permissions, node.quotas, node.faults.of(api.name))
            self._served[kind] = served
        return served, body

    def _unsupported(self, connection: FramedRequest, api_key: int) -> list[Bytes] | Outcome:
        version = connection.api_version
        if api_key == api_versions.API.request.API_KEY:
            return response_chunks(api_versions.unsupported_version(), 0, connection.correlation_id)
        return self._refuse(connection, f"API {api_key} version {version} is not served")

    def _refuse(self, connection: FramedRequest, why: str) -> Outcome:
        self._node.metrics.counters.malformed_requests += 1
        self._limited_log.warning("closing %s: %s", connection, why)
        return Outcome.CLOSE


def _discard_all(message: Message | Checked | BaseException) -> None:
    if isinstance(message, Checked):
        message = message.message
    if not isinstance(message, BaseException):
        discard(message, depth=3)
