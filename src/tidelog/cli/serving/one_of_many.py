"""One broker's process of `tidelog serve --processes`. It runs `tidelog serve`, and ends when its standard input is closed."""

from __future__ import annotations

import os
import signal
import sys
import threading

from tidelog.cli.app import cli
from tidelog.cli.serving import process


def _watch() -> None:
    """Shut down when the process that started this one has ended."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    process.announces_metrics = True
    threading.Thread(target=_watch, name="parent-watch", daemon=True).start()
    cli.main(["serve", *sys.argv[1:]], prog_name="tidelog")
