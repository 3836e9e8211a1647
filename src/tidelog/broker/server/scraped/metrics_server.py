"""Serves metrics and health over HTTP, a few requests at a time, so that scrapers cannot use up files, threads or memory.

| path | |
|---|---|
| `/metrics`, `/` | the process's numbers, and the broker's while it serves |
| `/healthz/live`, `/healthz/ready` | 200 or 503, and a line of text: see `health` |
| `/healthz` | the same as `/healthz/ready` |
| any other | 404, and a line with these paths: a probe with a wrong path must not succeed |

| limit | what happens |
|---|---|
| `MAX_REQUESTS` at a time | a further one replaces the oldest if that is `PATIENCE_S` old; otherwise it is closed at once |
| no bytes move for `PATIENCE_S` | the connection is closed |

Peers that send nothing or do not read thus cost at most `MAX_REQUESTS` connections, threads and responses, and block scrapers for
at most `PATIENCE_S`.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import HTTPServer
from socketserver import ThreadingMixIn
from time import monotonic
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, MetricsHandler, ProcessCollector
from prometheus_client.registry import Collector

from tidelog.broker.server.scraped.group_lags import Scraped
from tidelog.broker.server.scraped.health import Health
from tidelog.broker.server.scraped.prometheus import BrokerCollector, Snapshot
from tidelog.errors import StorageError

logger = logging.getLogger("tidelog.broker")

T = TypeVar("T")

MAX_REQUESTS = 8
PATIENCE_S = 10.0
HEALTH = "/healthz"
METRICS = "/metrics"


class MetricsServer:
    """Serves metrics on separate threads until it is closed. Raises StorageError if it cannot listen."""

    def __init__(self, host: str, port: int, health: Health) -> None:
        self._registry = CollectorRegistry()
        self._collector: BrokerCollector | None = None
        self._process = ProcessCollector(registry=self._registry)
        try:
            self._server = _Server(host or "0.0.0.0", port, self._registry, health)
        except OSError as error:
            raise StorageError(f"cannot serve metrics at {host}:{port}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.address: tuple[str, int] = (host, self._server.server_port)

    def report(self, ask: Callable[[], Snapshot], ask_groups: Callable[[], Scraped] | None = None) -> None:
        """Report a broker's metrics from now on, in addition to those of the process."""
        self._collector = BrokerCollector(_in_time(ask), None if ask_groups is None else _in_time(ask_groups))
        self._registry.register(self._collector)

    def report_instead(self, collector: Collector) -> None:
        """Report what a collector yields, instead of this process's numbers."""
        self._registry.unregister(self._process)
        self._registry.register(collector)

    def report_no_more(self) -> None:
        """Report only the process's numbers again."""
        if self._collector is not None:
            self._registry.unregister(self._collector)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _in_time(ask: Callable[[], T]) -> Callable[[], T]:
    def asked() -> T:
        try:
            return ask()
        except TimeoutError as error:  # An OSError would look like a failure of the peer.
            raise RuntimeError("the broker did not answer the metrics thread in time") from error

    return asked


class _Handler(MetricsHandler):
    timeout = PATIENCE_S
    health: Health

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        path = self.path.partition("?")[0].rstrip("/")
        if path in (HEALTH, f"{HEALTH}/live", f"{HEALTH}/ready"):
            why_not = self.health.why_not_live() if path.endswith("/live") else self.health.why_not_ready()
            self._answer(HTTPStatus.OK if why_not is None else HTTPStatus.SERVICE_UNAVAILABLE, why_not or "ok")
            return
        if path not in ("", METRICS):
            self._answer(HTTPStatus.NOT_FOUND, f"no such path: expected {METRICS}, {HEALTH}, {HEALTH}/live or {HEALTH}/ready")
            return
        if self.command == "HEAD":
            self._answer(HTTPStatus.OK, "")
            return
        try:
            super().do_GET()
        except OSError:
            raise
        except Exception as error:
            logger.warning("metrics cannot be reported: %s", error)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _answer(self, status: HTTPStatus, line: str) -> None:
        body = f"{line}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    request_queue_size = 128  # With the standard library's backlog of 5, scrapers in a burst wait a second or more.

    def __init__(self, host: str, port: int, registry: CollectorRegistry, health: Health) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._begun: dict[Any, float] = {}
        self._guard = threading.Lock()
        handler = type("_Handler", (_Handler,), {"registry": registry, "health": health})
        super().__init__(found[0][4][:2], handler)  # type: ignore[arg-type]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Make room for one more request if necessary. Return whether it can be served."""
        now = monotonic()
        with self._guard:
            if len(self._begun) >= MAX_REQUESTS:
                oldest = min(self._begun, key=self._begun.__getitem__)
                if now - self._begun[oldest] < PATIENCE_S:
                    return False
                del self._begun[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # Its thread notices the shutdown, and closes it.
            self._begun[request] = now
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._begun.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of a peer that disconnects or is too slow."""
        logger.debug("metrics: %s did not read its response", client_address, exc_info=True)
