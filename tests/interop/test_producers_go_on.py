"""Kafka's VerifiableProducer, idempotent, while `tidelog serve` is killed and restarted.

What it was passed every record is true afterwards: each acknowledged record is at its offset, each record is there once.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.clients import consume, create_topics, watermarks
from tests.kafka.jars import classpath
from tests.kafka.java import JavaProcess, free_port, wait_until
from tests.patience import PATIENCE_S

MESSAGES = 6000
A_SECOND = 2000


@contextmanager
def serving(data: Path, port: int, ends_by: signal.Signals) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "tidelog",
        "serve",
        "--data",
        data,
        "--listen",
        f"127.0.0.1:{port}",
        "--log-level",
        "warning",
    ]
    said = data.parent / "serve.err"
    with said.open("w") as sink, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == f"bootstrap.servers=127.0.0.1:{port}\n", said.read_text()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            process.send_signal(ends_by)
            status = process.wait(PATIENCE_S)
    assert status == (-ends_by if ends_by == signal.SIGKILL else 0)


def test_every_acknowledged_record_is_there_once(tmp_path: Path) -> None:
    port = free_port()
    data, output = tmp_path / "data", tmp_path / "producer.out"
    with serving(data, port, signal.SIGTERM) as bootstrap:
        create_topics(bootstrap, {"kept": {"segment.bytes": "20000"}})
    # Left to itself the tool never tries twice.
    settings = tmp_path / "producer.properties"
    settings.write_text("retries=2147483647\nenable.idempotence=true\nreconnect.backoff.max.ms=200\ndelivery.timeout.ms=600000\n")
    arguments = ["--bootstrap-server", bootstrap, "--topic", "kept", "--max-messages", str(MESSAGES)]
    arguments += ["--throughput", str(A_SECOND), "--producer.config", str(settings)]
    producer = None
    try:
        # Killed, ended in order, killed again; then until all is there.
        for share, ends_by in ((0.25, signal.SIGKILL), (0.5, signal.SIGTERM), (0.75, signal.SIGKILL), (1.0, signal.SIGTERM)):
            with serving(data, port, ends_by):
                producer = producer or JavaProcess(
                    classpath("3.9.1"), "org.apache.kafka.tools.VerifiableProducer", arguments, output=output, heap_mb=128
                )
                least = MESSAGES * share
                wait_until(lambda: watermarks(bootstrap, "kept")[1] >= least, f"{least:.0f} records", PATIENCE_S)  # noqa: B023
                if share == 1.0:
                    wait_until(lambda: not producer.is_running(), "the producer's end", PATIENCE_S)  # noqa: B023
                    rows = consume(bootstrap, "kept")
    finally:
        if producer is not None:
            producer.kill()
    events = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    sent = {event["offset"]: event["value"].encode() for event in events if event["name"] == "producer_send_success"}
    assert [event for event in events if event["name"] == "producer_send_error"] == []
    assert len(sent) == MESSAGES
    assert {row.offset: row.value for row in rows} == sent
    assert sorted(int(row.value or -1) for row in rows) == list(range(MESSAGES))
