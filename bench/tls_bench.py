"""Throughput over TLS compared with Apache Kafka 3.9.1: one raw client produces and fetches large batches, in turn; medians.

    python -m bench.tls_bench [--mb 300] [--rounds 3] [--shared-only]

Both brokers have the same `server.properties`, certificate (P-256) and TLS versions. They use TLS 1.3 with AES-256-GCM on one
connection. The plain port of both is measured too. Processor time is the broker's, in seconds per gigabyte of records.

Then sixteen connections share a broker for `--seconds`: all produce, or half of them fetch. Each keeps five Produce of 1 MB or
two Fetch of 4 MiB under way. The table shows MB/s, the p99 and the longest wait for a response, and the responses of the
connection that got the fewest, in percent of those of the one that got the most; separately for producers and fetchers.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Authority
from tests.kafka.brokers import LONG_LIVED, Kafka391
from tests.kafka.clients import create_topics
from tests.kafka.java import free_port, wait_until

from bench.broker.clients import OUT
from bench.broker.processor_time import own_seconds
from bench.broker.requests import FETCH_VERSION, PRODUCE_VERSION, batch, fetch_request, frame, produce_request, records_for
from bench.charts.figures import Figure, note

BATCH_BYTES = 1_000_000
FETCHED_BYTES = 4 << 20
FILLED_MB = 20
IN_FLIGHT = 4
SHARED, PRODUCES, FETCHES = 16, 5, 2
"""Connections that share a broker, and the requests that each keeps under way."""
TIMEOUT_S = 300
_SIZE = struct.Struct(">i")
_END = struct.Struct(">hq")


class Side(NamedTuple):
    """A running broker: its process, and its ports."""

    pid: int
    plain: int
    tls: int


class Measure(NamedTuple):
    mb_a_second: float
    cpu_s_per_gb: float


def properties(authority: Authority, plain: int, tls: int, data: Path) -> dict[str, str]:
    both = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}"
    return {
        "listeners": both,
        "advertised.listeners": both,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.folder / "broker.pem"),
        "log.dirs": str(data),
        "log.retention.ms": "-1",
        "log.segment.delete.delay.ms": "0",
    }


@contextmanager
def kafka(folder: Path, authority: Authority) -> Iterator[Side]:
    broker = Kafka391(folder, heap_mb=1024, java_options=("-server", "-Xms1G", *LONG_LIVED))
    tls = free_port()
    given = properties(authority, broker.port, tls, broker.data)
    given["listeners"] += f",CONTROLLER://127.0.0.1:{broker.controller_port}"
    given["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    broker.properties |= given
    with broker:
        assert broker.process is not None
        yield Side(broker.process.pid, broker.port, tls)


@contextmanager
def tidelog(folder: Path, authority: Authority) -> Iterator[Side]:
    folder.mkdir(parents=True)
    side = Side(0, free_port(), free_port())
    config = folder / "server.properties"
    given = properties(authority, side.plain, side.tls, folder / "data")
    config.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    command = [sys.executable, "-m", "tidelog", "serve", "--config", str(config)]
    with (folder / "out").open("wb") as out, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), (folder / "out").read_text()
        yield side._replace(pid=process.pid)
        process.terminate()


class Client:
    """One connection. `ask` sends requests, several before the response to the first, and yields the responses one by one."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if context is None else context.wrap_socket(plain, server_hostname="localhost")
        self._buffer = memoryview(bytearray(FETCHED_BYTES + (1 << 21)))

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> memoryview:
        size = _SIZE.unpack(self._filled(4))[0]
        return self._filled(size)

    def _filled(self, size: int) -> memoryview:
        filled = 0
        while filled < size:
            count = self._socket.recv_into(self._buffer[filled:size])
            if not count:
                raise ConnectionResetError
            filled += count
        return self._buffer[:size]

    def close(self) -> None:
        self._socket.close()


def produce(client: Client, topic: str, megabytes: int) -> None:
    request = frame(produce_request(topic, batch(records_for(BATCH_BYTES, 1024), 1024), acks=1), PRODUCE_VERSION)
    for number in range(megabytes + IN_FLIGHT):
        if number < megabytes:
            client.send(request)
        if number >= IN_FLIGHT:
            client.receive()


def fetch(client: Client, topic: str, megabytes: int) -> None:
    """Fetch the beginning of a topic repeatedly, to measure throughput."""
    got = 0
    request = frame(fetch_request(topic, 0, FETCHED_BYTES), FETCH_VERSION)
    client.send(request)
    while got < megabytes * BATCH_BYTES:
        client.send(request)
        got += len(client.receive())
    client.receive()


class Share(NamedTuple):
    """What one kind of connection got."""

    mb_a_second: float
    p99_ms: float
    longest_ms: float
    last_percent: float


def shared(port: int, context: ssl.SSLContext | None, seconds: float, fetchers: int) -> dict[str, Share]:
    """Keep `SHARED` connections busy, `fetchers` of them with Fetch, each on a thread: OpenSSL does not need Python's lock."""
    produced = frame(produce_request("produce", batch(records_for(BATCH_BYTES, 1024), 1024), acks=1), PRODUCE_VERSION)
    fetched = frame(fetch_request("fetch", 0, FETCHED_BYTES), FETCH_VERSION)
    kinds = ["fetch"] * fetchers + ["produce"] * (SHARED - fetchers)
    waits: list[list[float]] = [[] for _ in kinds]
    ready = threading.Barrier(SHARED + 1)

    def run(kind: str, mine: list[float]) -> None:
        client = Client(port, context)
        request, depth = (fetched, FETCHES) if kind == "fetch" else (produced, PRODUCES)
        ready.wait()
        until = time.monotonic() + seconds
        sent: deque[float] = deque()
        while sent or time.monotonic() < until:
            while len(sent) < depth and time.monotonic() < until:
                sent.append(time.monotonic())
                client.send(request)
            client.receive()
            mine.append(time.monotonic() - sent.popleft())
        client.close()

    threads = [threading.Thread(target=run, args=one) for one in zip(kinds, waits, strict=True)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    found = {}
    for kind, size in (("produce", len(produced)), ("fetch", FETCHED_BYTES)):
        of_kind = [mine for one, mine in zip(kinds, waits, strict=True) if one == kind]
        if of_kind:
            together = sorted(wait for mine in of_kind for wait in mine)
            fewest, most = min(map(len, of_kind)), max(map(len, of_kind))
            p99 = together[len(together) * 99 // 100]
            rate = len(together) * size / 1e6 / took
            found[kind] = Share(rate, p99 * 1000, together[-1] * 1000, 100 * fewest / most)
    return found


def report_shared(sides: dict[str, Side], context: ssl.SSLContext, seconds: float, rounds: int) -> None:
    print("16 connections                  MB/s   p99 ms   longest ms   the last's share %", flush=True)
    for fetchers in (0, SHARED // 2):
        for port, used in (("TLS", context), ("plain", None)):
            turns: dict[str, list[dict[str, Share]]] = {name: [] for name in sides}
            for _ in range(rounds):
                for name, side in sides.items():
                    turns[name].append(shared(side.tls if used else side.plain, used, seconds, fetchers))
            for kind in turns["kafka"][0]:
                for name, rows in turns.items():
                    row = [statistics.median(one[kind][column] for one in rows) for column in range(len(Share._fields))]
                    what = f"{kind}{' beside fetch' if fetchers and kind == 'produce' else ''}, {port}, {name}"
                    print(f"{what:36}", "".join(f"{value:10.0f}" for value in row), flush=True)


def measured(side: Side, port: int, context: ssl.SSLContext | None, work: Callable[[Client], None], megabytes: int) -> Measure:
    client = Client(port, context)
    try:
        began, cpu = time.monotonic(), own_seconds(side.pid)
        work(client)
        return Measure(megabytes / (time.monotonic() - began), (own_seconds(side.pid) - cpu) / (megabytes / 1000))
    finally:
        client.close()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="bytes over TLS beside Apache Kafka 3.9.1")
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run with sixteen connections")
    parser.add_argument("--shared-only", action="store_true", help="only sixteen connections that share a broker")
    options = parser.parse_args(arguments)
    folder = OUT / "tls"
    shutil.rmtree(folder, ignore_errors=True)
    authority = Authority(folder / "certificates")
    authority.sign("broker", hosts=("localhost", "127.0.0.1"))
    context = ssl.create_default_context(cafile=str(authority.ca))
    cases = [("produce", produce), ("fetch", fetch)]
    turns: dict[tuple[str, str, str], list[Measure]] = {}
    with kafka(folder / "kafka", authority) as theirs, tidelog(folder / "tidelog", authority) as ours:
        sides = {"kafka": theirs, "tidelog": ours}
        for side in sides.values():
            wait_until(lambda side=side: Client(side.plain, None) is not None, "the port", TIMEOUT_S)  # type: ignore[misc]
            # Retention must not delete the fetched records.
            topics = {"produce": {"segment.bytes": "100000000", "retention.bytes": "400000000"}, "fetch": {}}
            create_topics(f"127.0.0.1:{side.plain}", topics)
            measured(side, side.plain, None, lambda client: produce(client, "fetch", FILLED_MB), FILLED_MB)
        report_shared(sides, context, options.seconds, options.rounds)
        for turn in range(0 if options.shared_only else options.rounds + 1):
            for case, run in cases:
                for port, used in (("TLS", context), ("plain", None)):
                    for name, side in sides.items():
                        at = side.tls if used else side.plain
                        found = measured(
                            side, at, used, lambda client, run=run, case=case: run(client, case, options.mb), options.mb
                        )  # type: ignore[misc]
                        if turn:  # The first round warms up.
                            turns.setdefault((case, port, name), []).append(found)
    shutil.rmtree(folder, ignore_errors=True)
    for case, _ in () if options.shared_only else cases:
        for port in ("TLS", "plain"):
            rate, cpu = (
                {name: statistics.median(getattr(one, field) for one in turns[case, port, name]) for name in sides}
                for field in Measure._fields
            )
            print(
                f"{case} {port:5}  MB/s {rate['kafka']:6.0f} → {rate['tidelog']:6.0f}  {rate['tidelog'] / rate['kafka']:5.2f}"
                f"   processor s/GB {cpu['kafka']:5.2f} → {cpu['tidelog']:5.2f}  {cpu['tidelog'] / cpu['kafka']:5.2f}"
            )
            processor = (cpu["kafka"], cpu["tidelog"])
            note("tls", Figure(f"{case}, {port}", rate["kafka"], rate["tidelog"], "MB/s", target=1, processor=processor))
    return 0


if __name__ == "__main__":
    sys.exit(main())
