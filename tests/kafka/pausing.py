"""Pauses a process that the tests started, and lets it continue.

SIGSTOP takes effect some time after `os.kill` has returned. On a loaded machine a paused broker fetched and answered for another
tenth of a second, so records that it was to miss had reached it.
"""

from __future__ import annotations

import os
import signal

from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S


def pause(pid: int) -> None:
    """Stop a child process, and return once none of its threads runs, or it has ended. TimeoutError if it does not stop."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _has_stopped(pid), f"process {pid} to stop", PATIENCE_S)


def _has_stopped(pid: int) -> bool:
    # Without WNOWAIT the notification is used up, so that the next pause waits for its own; a child's end is left for its `wait`.
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        return True
    return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None


def go_on(pid: int) -> None:
    """Let a paused process continue."""
    os.kill(pid, signal.SIGCONT)
