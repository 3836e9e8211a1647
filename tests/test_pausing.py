"""A process that the tests have paused does nothing more: see `tests/kafka/pausing.py`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka import pausing

THREADS = """
import threading, time
def run():
    while True:
        time.sleep(0.0001)
for _ in range(30):
    threading.Thread(target=run, daemon=True).start()
print("started", flush=True)
threading.Event().wait()
"""


def states(pid: int) -> set[str]:
    """Return the states of a process's threads."""
    return {path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")}


def test_no_thread_runs() -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("this system does not show the states of threads")
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        try:
            for _ in range(20):
                pausing.pause(process.pid)
                assert states(process.pid) == {"T"}
                pausing.go_on(process.pid)
        finally:
            process.kill()


def test_one_that_ends_instead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.send_signal(signal.SIGKILL)
        pausing.pause(process.pid)
        assert process.wait() == -signal.SIGKILL
