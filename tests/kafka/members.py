"""Tidelog brokers in a cluster with Apache Kafka's controllers: a `tidelog serve` process each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import orphans
from tests.kafka import outputs, pausing
from tests.kafka.clusters import KafkaCluster
from tests.kafka.java import free_port, wait_until
from tests.patience import PATIENCE_S


class TidelogMember:
    """A broker of ours, with a folder that is formatted as Kafka's tool does it. `start` returns once it serves clients."""

    def __init__(
        self,
        cluster: KafkaCluster,
        node_id: int,
        properties: Mapping[str, str] | None = None,
        *,
        cluster_id: str | None = None,
        folder: Path | None = None,
        port: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.port = port or free_port()
        self.folder = folder or cluster.folder / f"member-{node_id}"
        self.data = self.folder / "data"
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.output = self.folder / "serve.out"
        self.process: subprocess.Popen[bytes] | None = None
        self.program = ["-m", "tidelog"]
        """Python's arguments before the command."""
        cluster.format(self.data, node_id, cluster_id)
        self.properties = {**cluster.member_properties(node_id, self.port, self.data), **(properties or {})}

    def begin(self) -> None:
        """Start it without waiting."""
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        with self.output.open("ab") as output:
            command = [sys.executable, *self.program, "serve", "--config", str(config)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        orphans.watch(self.process)
        outputs.note(self.output)

    def start(self) -> None:
        before = self.said().count("serving at")
        self.begin()
        wait_until(lambda: self.is_over() or self.said().count("serving at") > before, f"broker {self.node_id}", PATIENCE_S)
        assert not self.is_over(), self.said()

    def is_over(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def wait_for(self, words: str) -> None:
        """Wait until it has logged a text."""
        wait_until(lambda: words in self.said() or self.is_over(), f"broker {self.node_id} to say {words!r}", PATIENCE_S)
        assert words in self.said(), self.said()

    def ended(self) -> int:
        """Wait until it has ended by itself, and return its exit code."""
        process, self.process = self.process, None
        assert process is not None
        code = process.wait(PATIENCE_S)
        orphans.ended(process)
        return code

    def stop(self) -> int:
        """End it by SIGTERM, and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.ended()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.ended()

    def pause(self) -> None:
        assert self.process is not None
        pausing.pause(self.process.pid)

    def go_on(self) -> None:
        assert self.process is not None
        pausing.go_on(self.process.pid)
