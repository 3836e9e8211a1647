"""The end of `tidelog serve` where a disk does not answer: it says what it waits for, not forever; a second signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT
from tests.patience import PATIENCE_S
from tests.storage.managers import managed
from tests.storage.partition_logs import batch
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.storage import close_logs as closing

SERVE = """
import os, pathlib, runpy, sys, time
stuck, real = pathlib.Path(sys.argv[1]), os.fsync
def fsync(fd):
    while stuck.exists():
        time.sleep(0.05)
    real(fd)
os.fsync = fsync
from tidelog.broker.loop import event_loop
from tidelog.storage import close_logs as closing
closing.PROGRESS_S = event_loop.PROGRESS_S = 0.1
{more}
sys.argv = ["tidelog", "serve", "--data", sys.argv[2], "--listen", "0"]
runpy.run_module("tidelog", run_name="__main__")
"""


class Server:
    """A broker's process whose disk does not answer while the file `stuck` is there."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.stuck, self.data = folder / "stuck", folder / "data"
        self.stderr = folder / "err"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", SERVE.replace("{more}", more), str(self.stuck), str(self.data)]
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
        assert self.process.stdout is not None
        self.bootstrap = self.process.stdout.readline().strip().partition("=")[2]
        if not self.bootstrap:
            self.end()
            pytest.fail(self.stderr.read_text())

    def write(self) -> None:
        from confluent_kafka import Producer

        answers: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce("t", b"value", on_delivery=lambda error, _: answers.append(error))
        assert producer.flush(PATIENCE_S) == 0
        assert answers == [None]

    def create(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(PATIENCE_S)

    def end(self) -> int:
        assert self.process.stdout is not None
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.stdout.close()


FULL_PIPE = """
import asyncio, signal
from tidelog.broker.serving_broker import ServingBroker
until = ServingBroker.until
async def signalled(self, stop):
    for _ in range(20_000):  # All in one turn of the loop: each would wake it, and it reads none of that meanwhile.
        asyncio.get_running_loop().call_soon_threadsafe(int)
    signal.raise_signal(signal.SIGTERM)
    await until(self, stop)
ServingBroker.until = signalled
"""


def wait_for(server: Server, *texts: str) -> None:
    """Wait until one of these is on the log."""
    until = time.monotonic() + PATIENCE_S
    while not any(text in server.stderr.read_text() for text in texts):
        assert time.monotonic() < until, server.stderr.read_text()
        time.sleep(0.02)


def test_a_disk_that_answers_again(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.write()
    server.stuck.touch()
    server.process.send_signal(signal.SIGTERM)
    wait_for(server, "waiting for", "0 of 1 logs flushed and closed")
    server.stuck.unlink()
    assert server.end() == 0, server.stderr.read_text()
    assert (server.data / CLEAN_SHUTDOWN_FILE).exists()


def test_the_second_signal_while_it_waits_for_the_disk(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.write()
    server.stuck.touch()
    server.process.send_signal(signal.SIGTERM)
    wait_for(server, "waiting for", "0 of 1 logs flushed and closed")
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 128 + signal.SIGTERM, server.stderr.read_text()
    assert not (server.data / CLEAN_SHUTDOWN_FILE).exists()


def test_a_signal_while_the_loops_pipe_is_full(tmp_path: Path) -> None:
    """asyncio's own way of signals writes into the pipe by which the loop is woken, and has nothing where that is full."""
    server = Server(tmp_path, FULL_PIPE)
    assert server.end() == 0, server.stderr.read_text()
    assert (server.data / CLEAN_SHUTDOWN_FILE).exists()
    assert "SIGTERM: shutting down" in server.stderr.read_text()


def test_a_disk_that_never_answers(tmp_path: Path) -> None:
    server = Server(tmp_path, "closing.STALLED_S = event_loop.AT_THE_END_S = 0.3")
    server.write()
    server.stuck.touch()
    server.process.send_signal(signal.SIGTERM)
    wait_for(server, "1 logs are not closed")
    assert server.end() == 1, server.stderr.read_text()
    assert not (server.data / CLEAN_SHUTDOWN_FILE).exists()
    assert "ended while threads were still waiting: tidelog-" in server.stderr.read_text()


def test_the_folder_stays_locked_while_a_thread_is_stuck(tmp_path: Path) -> None:
    """The process waits for its threads here, so that there is time to look: another process must not get the folder."""
    server = Server(
        tmp_path,
        "closing.STALLED_S = event_loop.AT_THE_END_S = 0.3; from tidelog.cli.serving import process; process.WIND_UP_S = 600",
    )
    server.write()
    server.stuck.touch()
    server.process.send_signal(signal.SIGTERM)
    wait_for(server, "ended with errors")
    assert is_locked(server.data)
    server.stuck.unlink()
    assert server.end() == 1, server.stderr.read_text()
    assert not is_locked(server.data)
    assert not (server.data / CLEAN_SHUTDOWN_FILE).exists()


def test_the_main_thread_closes_no_log(tmp_path: Path) -> None:
    """A log without new records is synced, too, and the broker says that it waits for the disk."""
    server = Server(tmp_path, "closing.STALLED_S = event_loop.AT_THE_END_S = 0.3")
    server.create("empty", 2)
    server.stuck.touch()
    server.process.send_signal(signal.SIGTERM)
    wait_for(server, "2 logs are not closed")
    assert server.end() == 1, server.stderr.read_text()


def test_an_end_that_does_not_come_on(tmp_path: Path) -> None:
    """Whatever it waits for: here the checkpoints, for which the main thread waits."""
    server = Server(tmp_path, "from tidelog.cli.serving import process; process.STALLED_S = 0.3")
    server.stuck.touch()
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 1, server.stderr.read_text()
    assert "the shutdown has made no progress" in server.stderr.read_text()


def test_a_log_that_cannot_be_closed_keeps_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with managed(tmp_path) as manager:
        manager.create_topic("t", 12)
        logs = [manager.log("t", number) for number in range(12)]
        for log in logs:
            log.append_as_leader(batch(), 0)
        logs[3].metadata_file.maybe_flush = None  # type: ignore[method-assign, assignment]
        assert not closing.close_logs(logs, nullcontext)
        assert all(log.local.is_closed for log in logs)
        assert all(log.recovery_point == 1 for log in logs)
        assert "t-3: not closed cleanly" in caplog.text
