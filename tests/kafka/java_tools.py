"""Runs many command-line tools of a Kafka release in one process, because starting a JVM takes longer than most of them.

with JavaTools("3.9.1") as tools:
    tools.run(CONSUMER_GROUPS, "--bootstrap-server", bootstrap, "--list")
"""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from tests import orphans
from tests.kafka.jars import classpath
from tests.kafka.java import end_input, java_command, shared_classes

PROGRAM = Path(__file__).parent / "java_sources" / "ToolProgram.java"
RELEASES = {"3.9.1": "3.9.1", "4.3.1": "kafka-tools-4.3.1"}
"""Where the tools of a release are; see `jars`."""

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


TIMEOUT_S = 600


class Said(NamedTuple):
    """A tool's output on both streams, and its exit status."""

    status: int
    text: str


class JavaTools:
    """See the module."""

    def __init__(self, release: str, *, with_log: bool = False) -> None:
        """`with_log`: what tools log is in their output, too."""
        self.release = release
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        jars = classpath(RELEASES.get(release, release))
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *shared_classes(jars)]
        command = java_command(jars, str(PROGRAM), ["log"] if with_log else [], heap_mb=256, options=options)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        orphans.watch(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdout is not None
        try:
            end_input(self._process)
        finally:
            orphans.ended(self._process)
            self._process.stdout.close()
            self._log.close()

    def run(self, tool: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> Said:
        """Run a tool, by the name of its class. RuntimeError if it ends the process, or does not end in time."""
        timer = threading.Timer(timeout_s, self._process.kill)
        timer.start()
        try:
            return self._run(tool, arguments)
        finally:
            timer.cancel()

    def _run(self, tool: str, arguments: Sequence[str]) -> Said:
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


_shared: dict[str, JavaTools] = {}
_lock = threading.Lock()


def run_tool(
    release: str, tool: str, arguments: Sequence[str | os.PathLike[str]], *, check: bool = True, timeout_s: float = TIMEOUT_S
) -> str:
    """Run a tool in the process that all tests here share, and return what it prints.

    Raises RuntimeError if the tool fails and `check` is set, or does not end in time.
    """
    with _lock:
        if release not in _shared:
            _shared[release] = JavaTools(release, with_log=True)
            if len(_shared) == 1:
                atexit.register(_end_shared)
        try:
            said = _shared[release].run(tool, *map(os.fspath, arguments), timeout_s=timeout_s)
        except (RuntimeError, OSError):
            _end_shared(release)
            raise
    if check and said.status != 0:
        raise RuntimeError(f"{tool} ended with {said.status}:\n{said.text[-4000:]}")
    return said.text


def _end_shared(*releases: str) -> None:
    for release in releases or tuple(_shared):
        with suppress(OSError, subprocess.TimeoutExpired):
            _shared.pop(release).close()
