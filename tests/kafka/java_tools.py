"""Runs many command-line tools of a Kafka release in one process, because starting a JVM takes longer than most of them.

with JavaTools("3.9.1") as tools:
    tools.run(CONSUMER_GROUPS, "--bootstrap-server", bootstrap, "--list")
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import IO, NamedTuple, Self

from tests.kafka.jars import classpath
from tests.kafka.java import end_input, java_command

PROGRAM = Path(__file__).parent / "java_sources" / "ToolProgram.java"
RELEASES = {"3.9.1": "3.9.1", "4.3.1": "kafka-tools-4.3.1"}
"""Where the tools of a release are; see `jars`."""

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


class Said(NamedTuple):
    """A tool's output on both streams, and its exit status."""

    status: int
    text: str


class JavaTools:
    """See the module."""

    def __init__(self, release: str) -> None:
        self.release = release
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = java_command(classpath(RELEASES[release]), str(PROGRAM), [], heap_mb=256, options=options)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        assert self._process.stdout is not None
        try:
            end_input(self._process)
        finally:
            self._process.stdout.close()
            self._log.close()

    def run(self, tool: str, *arguments: str) -> Said:
        """Run a tool, by the name of its class."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((tool, *arguments)).encode() + b"\n")
        self._process.stdin.flush()
        head = self._process.stdout.readline()
        if not head:
            self._log.seek(0)
            raise RuntimeError(f"{tool} ended its process:\n{self._log.read().decode()[-4000:]}")
        status, size = map(int, head.split())
        return Said(status, self._process.stdout.read(size).decode())
