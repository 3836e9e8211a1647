"""The port for metrics takes little of the broker's process, whatever is done to it, and serves scrapers all the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests import patience
from tidelog.broker.loop.metrics import Metrics
from tidelog.broker.server.scraped import metrics_server
from tidelog.broker.server.scraped.health import STARTING, STOPPING, Health
from tidelog.broker.server.scraped.metrics_server import MAX_REQUESTS, PATIENCE_S, MetricsServer
from tidelog.broker.server.scraped.prometheus import Snapshot


def snapshot() -> Snapshot:
    return Snapshot(Metrics(), {})


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1", 0, Health())
    server.report(snapshot)
    yield server
    server.close()


def scraped(server: MetricsServer) -> bytes:
    connection = HTTPConnection(*server.address, timeout=patience.PATIENCE_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()
    finally:
        connection.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_peers_that_say_nothing_or_do_not_read(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics_server, "monotonic", lambda: now[0])
    threads, files, peers = threading.active_count(), open_files(), 60
    with ExitStack() as stack:
        for number in range(peers):
            peer = stack.enter_context(socket.socket())
            peer.connect(server.address)
            peer.settimeout(patience.PATIENCE_S)
            if number % 2:
                peer.sendall(b"GET /metrics HTTP/1.0\r\n")
            if number >= MAX_REQUESTS:
                with suppress(ConnectionError):
                    assert not peer.recv(1)
        assert threading.active_count() <= threads + MAX_REQUESTS
        assert open_files() <= files + peers + 2 * MAX_REQUESTS  # as many again for what else this process has open
        with pytest.raises((ConnectionError, HTTPException)):
            scraped(server)
        now[0] += PATIENCE_S
        for _ in range(3):
            assert b"tidelog_connections" in scraped(server)


def test_a_broker_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> Snapshot:
        raise TimeoutError

    server = MetricsServer("127.0.0.1", 0, Health())
    server.report(ask)
    try:
        with pytest.raises(AssertionError):
            scraped(server)
    finally:
        server.close()
    assert "metrics cannot be reported: the broker did not answer the metrics thread in time" in caplog.text


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/metrics?name[]=x", 200), ("/healthz", 503), ("/healthz/redy", 404), ("/health", 404)]
)
def test_only_known_paths_are_answered(server: MetricsServer, path: str, status: int) -> None:
    """A probe with a wrong path must not succeed."""
    found, body = asked(server, path)
    assert found == status
    assert ("no such path: expected /metrics, /healthz, " in body) == (status == 404)
    connection = HTTPConnection(*server.address, timeout=patience.PATIENCE_S)
    connection.request("HEAD", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (status, b"")


def asked(server: MetricsServer, path: str) -> tuple[int, str]:
    connection = HTTPConnection(*server.address, timeout=patience.PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


def test_health_from_the_start_to_the_end() -> None:
    health = Health()
    server = MetricsServer("127.0.0.1", 0, health)

    def answers() -> list[tuple[int, str]]:
        return [asked(server, path) for path in ("/healthz/live", "/healthz/ready?verbose", "/healthz")]

    def slow() -> str | None:
        raise TimeoutError

    def closed() -> str | None:
        raise RuntimeError("the loop is closed")

    fine = (200, "ok")
    try:
        assert answers() == [fine, (503, STARTING), (503, STARTING)]
        assert b"tidelog_" not in scraped(server)
        health.serving(lambda: None)
        server.report(snapshot)
        assert answers() == [fine, fine, fine]
        assert b"tidelog_connections " in scraped(server)
        health.serving(lambda: "the controllers have fenced this broker")
        assert answers() == [fine, *[(503, "the controllers have fenced this broker")] * 2]
        health.serving(slow)
        assert answers() == [(503, "the event loop has not answered for 10 s")] * 3
        health.serving(closed)
        assert answers() == [fine, (503, STOPPING), (503, STOPPING)]
        health.stopping()
        server.report_no_more()
        assert answers() == [fine, (503, STOPPING), (503, STOPPING)]
        assert b"tidelog_" not in scraped(server)
    finally:
        server.close()
