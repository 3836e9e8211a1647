"""Processes of a test: `tidelog serve`, and programs that tell what they do, line by line. Any may be killed at any time."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests import orphans
from tests.kafka.java import free_port, wait_until
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]


class Endpoint(Protocol):
    """A broker as `copying` needs it: Tidelog's here, or Apache Kafka's of `tests/kafka/brokers.py`."""

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


KEEP_ALL = {"log.retention.ms": "-1", "log.initial.task.delay.ms": "0"}
"""Records of tests are years old: with Kafka's defaults a broker deletes them half a minute after its start, which only slow
machines see. Background work begins at once, so that it is part of every run."""


class Served:
    """`tidelog serve` in a process. Folder, port and properties stay when it is killed and started again.

    It has `KEEP_ALL` where `properties` do not say otherwise.
    """

    def __init__(self, data: Path, properties: Mapping[str, object], port: int | None = None) -> None:
        self.data = data
        self.port = port or free_port()
        self.properties = KEEP_ALL | dict(properties)
        self.said = data.parent / "serve.err"
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        line = self._launch("--listen", self.bootstrap)
        assert line == f"bootstrap.servers={self.bootstrap}\n", self.said.read_text()[-4000:]

    def _launch(self, *options: str) -> str:
        """Start the process; return the first line that it writes to stdout."""
        command = [sys.executable, "-m", "tidelog", "serve", "--data", os.fspath(self.data), *options]
        for name, value in self.properties.items():
            command += ["--property", f"{name}={value}"]
        with self.said.open("ab") as sink:
            self.process = subprocess.Popen(
                [*command, "--log-level", "warning"], stdout=subprocess.PIPE, stderr=sink, text=True, cwd=ROOT
            )
        orphans.watch(self.process)
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; an error where that fails."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"status {status}: {self.said.read_text()[-4000:]}"

    def _end(self, by: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        assert process.stdout is not None
        process.send_signal(by)
        status = process.wait(PATIENCE_S)
        orphans.ended(process)
        process.stdout.close()
        return status

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop() if kind is None else self.kill()


def broker_pids(supervisor: int) -> list[int]:
    """Return the pids of the brokers that a `serve --processes` has started."""
    found = []
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # It may have ended meanwhile.
            if "one_of_many" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(int(pid))
    return found


class ServedByMany(Served):
    """`tidelog serve --processes N`: one broker after the other is killed or stopped; its supervisor starts it again."""

    def __init__(self, data: Path, properties: Mapping[str, object], count: int) -> None:
        super().__init__(data, properties)
        self.count = count
        self.restarts = 0
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def brokers(self) -> list[int]:
        assert self.process is not None
        return broker_pids(self.process.pid)

    def start(self) -> None:
        """Start it; if it runs, wait until all its brokers do."""
        if self.process is None:
            line = self._launch("--processes", str(self.count), "--listen", "0")
            assert line.startswith("bootstrap.servers="), self.said.read_text()[-4000:]
            self._bootstrap = line.strip().partition("=")[2]
        wait_until(lambda: len(self.brokers()) == self.count, "all brokers", PATIENCE_S)

    def kill(self) -> None:
        self._end_one(signal.SIGKILL)

    def stop(self) -> None:
        self._end_one(signal.SIGTERM)

    def _end_one(self, by: signal.Signals) -> None:
        pids = self.brokers()
        pid = pids[self.restarts % len(pids)]
        self.restarts += 1
        os.kill(pid, by)
        wait_until(lambda: pid not in self.brokers(), f"the end of {pid}", PATIENCE_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().stop() if kind is None else super().kill()


class Program:
    """A client's process. What it prints are words on a line: what happened, and its particulars."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.errors = errors
        with errors.open("ab") as sink:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True, cwd=ROOT)
        self.events: list[list[str]] = []
        """What it has told so far, as `expect` and `look` found it."""
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def expect(self, event: str, timeout_s: float = PATIENCE_S) -> list[str]:
        """Wait until it reports an event; return its particulars. AssertionError if it ends before, TimeoutError in vain."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError(f"no {event!r} in {timeout_s} s, after {self.events[-3:]}: {self.tail()}") from None
            assert line is not None, f"no {event!r} after {self.events[-3:]}: {self.tail()}"
            words = line.split()
            self.events.append(words)
            if words[0] == event:
                return words[1:]

    def look(self) -> list[list[str]]:
        """Return all that it has told until now."""
        with contextlib.suppress(queue.Empty):
            while (line := self._lines.get_nowait()) is not None:
                self.events.append(line.split())
        return self.events

    def ended(self) -> int | None:
        """Its status, None while it runs."""
        return self.process.poll()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to end, and return its status."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def show_stacks(self) -> None:
        """Have a Python program write to its errors where it stands; Java's (SIGQUIT) would go to its output."""
        self.process.send_signal(signal.SIGUSR1)

    def tail(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def _end(self, by: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(by)
            self.process.send_signal(signal.SIGCONT)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            raise TimeoutError(f"it did not end when it was asked to: {self.tail()}") from None
        self._reader.join(PATIENCE_S)
        self.look()
        return status
