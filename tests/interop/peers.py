"""The broker under test for real clients: Tidelog in its own process, or optionally Apache Kafka, to check the tests themselves.

TIDELOG_CLIENTS_AGAINST=2.4.1 .venv/bin/python -m pytest tests/interop/test_real_clients.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.kafka import Kafka241, Kafka391, Kafka420
from tests.kafka.clients import create_topics
from tests.patience import PATIENCE_S

AGAINST = os.environ.get("TIDELOG_CLIENTS_AGAINST", "tidelog")
_STARTED = "bootstrap.servers="


class Peer(Protocol):
    """A running broker."""

    data: Path

    @property
    def bootstrap(self) -> str: ...
    def create_topics(self, configs: Mapping[str, Mapping[str, str]], partitions: int = 1) -> None: ...


class Tidelog:
    """`tidelog serve`, on a free port."""

    def __init__(self, data: Path, bootstrap: str) -> None:
        self.data = data
        self.bootstrap = bootstrap

    def create_topics(self, configs: Mapping[str, Mapping[str, str]], partitions: int = 1) -> None:
        create_topics(self.bootstrap, configs, partitions)


@contextmanager
def served(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """A broker with its data in `folder/data`, which may already contain data: Tidelog, or the selected Kafka.

    Properties are a broker's, by Kafka's names. Records stay, however old they are.
    """
    properties = {"log.retention.ms": "-1"} | dict(properties or {})
    kafka = {kind.RELEASE: kind for kind in (Kafka241, Kafka391, Kafka420)}.get(AGAINST)
    if kafka is not None:
        with kafka(folder, properties) as broker:
            yield broker
        return
    data = folder / "data"
    command: list[str | Path] = [sys.executable, "-m", "tidelog", "serve", "--data", data, "--listen", "127.0.0.1:0"]
    for name, value in properties.items():
        command += ["--property", f"{name}={value}"]
    with (
        (folder / "serve.err").open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(_STARTED), f"{line!r}, {(folder / 'serve.err').read_text()}"
            yield Tidelog(data, line.removeprefix(_STARTED).strip())
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(PATIENCE_S)
    said_lines = (folder / "serve.err").read_text()
    assert status == 0, said_lines
    assert "Traceback" not in said_lines, said_lines
