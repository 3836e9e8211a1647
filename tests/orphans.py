"""Processes of a test that must not outlive it, however it ends: a worker that is interrupted or killed ends nothing itself.

The first `watch` of a process starts a program beside it, which reads from a pipe which processes are alive. The pipe ends with
its writer; what is alive then is killed.
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
    """Kill this process when the present one has ended."""
    _tell(f"+{process.pid}\n")


def ended(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Forget a process that has ended: its number may be another's soon."""
    _tell(f"-{process.pid}\n")


def _tell(line: str) -> None:
    with _lock:
        os.write(_pipe(os.getpid()), line.encode())


@functools.cache
def _pipe(_pid: int) -> int:
    """Start the program; of a process that was forked, another one."""
    # A session of its own: a Ctrl-C in the terminal is not for it.
    program = subprocess.Popen([sys.executable, "-S", "-c", _PROGRAM], stdin=subprocess.PIPE, start_new_session=True)
    assert program.stdin is not None
    atexit.register(program.wait, 60)
    atexit.register(program.stdin.close)
    return program.stdin.fileno()
