"""One served version of an API: its codec, its handler and its metrics."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Any

from tidelog.broker.apis import produce
from tidelog.broker.authorization.faults import Fault
from tidelog.broker.authorization.permissions import Permissions
from tidelog.broker.dispatch.usual_api import UsualApi
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.authorized_handler import AuthorizedHandler
from tidelog.broker.handling.faulty_handler import FaultyHandler
from tidelog.broker.loop.metrics import ApiMetrics
from tidelog.broker.peers.forwarded_apis import Forwarded
from tidelog.broker.quotas.client_quotas import ClientQuotas, Counted
from tidelog.broker.requests.wide_requests import BYTES_AT_ONCE
from tidelog.wire.codec import Bytes, Message, decoder
from tidelog.wire.headers import response_writer


class ServedApi:
    """One served version of an API. Its codec is compiled when the first request arrives."""

    __slots__ = (
        "bytes_at_once",
        "check",
        "decode",
        "forwarded",
        "handle",
        "is_flexible",
        "metrics",
        "quotas",
        "response",
        "usual",
        "version",
        "write",
    )

    def __init__(
        self,
        api: Api | Forwarded,
        version: int,
        metrics: ApiMetrics,
        permissions: Permissions | None,
        quotas: ClientQuotas,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        self.version = version
        self.quotas = quotas
        self.metrics = metrics
        self.forwarded: Forwarded | None = None
        if isinstance(api, Forwarded):
            # A forwarded request is not decoded here: it is handled like requests that are too large for the event loop.
            self.forwarded = api
            self.bytes_at_once = -1
            self.is_flexible = False
            self.usual = None
            self.check = None
            return
        self.is_flexible = version >= api.request.FIRST_FLEXIBLE
        self.handle = FaultyHandler.of(api, AuthorizedHandler.of(api, permissions), faults)
        self.check = self.handle.check if isinstance(self.handle, AuthorizedHandler) else None
        self.usual = None if faults else UsualApi.of(api, version)
        self.bytes_at_once = sys.maxsize if api is produce.API else BYTES_AT_ONCE
        # Kafka ignores bytes after a request, and librdkafka's Metadata request has one byte too many.
        self.decode: Any = decoder(api.request, version, exact=False)
        self.response = api.response
        self.write: Any = response_writer(api.response, version)

    def finish(self, response: Message, request: Counted) -> list[Bytes]:
        """Return the response's bytes, and count the request in quotas and metrics."""
        if self.quotas.is_active:
            self.quotas.throttle(request, response)
        chunks: list[Bytes] = self.write(response, request.correlation_id)
        self.metrics.microseconds.record((perf_counter_ns() - request.started_ns) // 1000)
        return chunks

    def throttle(self, request: Counted, response: Message | None) -> None:
        """Count a request against its client's quotas. Call this instead of `finish` if another thread encodes the response, or
        if there is no response (None).
        """
        if self.quotas.is_active:
            self.quotas.throttle(request, response)
