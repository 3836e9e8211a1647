"""A program in a terminal of its own, as a person uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tests.patience import PATIENCE_S

WHERE_IS_THE_CURSOR = b"\x1b[6n"


class Terminal:
    """A terminal of 40 lines, and the program in it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - it only makes two system calls
        )
        os.close(slave)
        self._seen = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, pattern: str) -> str:
        """Return what was shown up to the end of the first match."""
        deadline = time.monotonic() + PATIENCE_S
        while (match := re.search(pattern.encode(), self._seen)) is None:
            assert time.monotonic() < deadline, self._seen[-3000:]
            if select.select([self._master], [], [], 0.2)[0]:
                shown = os.read(self._master, 1 << 16)
                if WHERE_IS_THE_CURSOR in shown:
                    os.write(self._master, b"\x1b[40;1R")
                self._seen += shown
        shown, self._seen = self._seen[: match.end()], self._seen[match.end() :]
        return shown.decode()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
