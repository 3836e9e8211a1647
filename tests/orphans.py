"""Processes that must not outlive their test, however it ends: an interrupted or killed worker does not stop them.

The first `watch` in a process starts a helper program, which reads the list of live processes from a pipe. The pipe closes when
its writer ends; the helper then kills the processes that are still alive.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import threading

_lock = threading.Lock()

_PROGRAM = """
import os, signal, sys
alive = set()
for line in sys.stdin:
    sign, pid = line[0], int(line[1:])
    alive.add(pid) if sign == "+" else alive.discard(pid)
for pid in alive:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def watch(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill this process when the current one has ended."""
    _tell(f"+{process.pid}\n")


def ended(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Forget a process that has ended: its pid may be reused soon."""
    _tell(f"-{process.pid}\n")


def _tell(line: str) -> None:
    with _lock:
        os.write(_pipe(os.getpid()), line.encode())


@functools.cache
def _pipe(_pid: int) -> int:
    """Start the helper; in a forked process, start another one."""
    # Its own session: a Ctrl-C in the terminal must not reach it.
    program = subprocess.Popen([sys.executable, "-S", "-c", _PROGRAM], stdin=subprocess.PIPE, start_new_session=True)
    assert program.stdin is not None
    atexit.register(program.wait, 60)
    atexit.register(program.stdin.close)
    return program.stdin.fileno()
