"""A tutorial as a program: its blocks run from top to bottom in one folder, and print what the page shows.

- `console` blocks: each `$ command` runs at `NOW`, in this process or in a shell. The lines after it must be among those that it
  printed, in that order; `...` stands for any lines, or for the rest of a line.
- Blocks with a title are files, which are written into the folder.
- Other `python` blocks are one program, which runs in the same folder. A `text` block shows what the one before it printed.
- A broker that the page starts in the background listens on free ports instead of `PORTS`. Its process id is in a file `*.pid`.

Widths of columns are not compared, nor what differs from run to run: random ids, ports, durations, times of today.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from tests.kafka.java import free_port
from tests.patience import PATIENCE_S
from tidelog.cli.app import cli
from tidelog.clock import ManualClock

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 19, 10, tzinfo=UTC)

BLOCK = re.compile(r"^```(\w+)(?: title=\"(\S+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PADDING = re.compile(r" {2,}|\t")
VARYING = re.compile(
    r"(?!2026-11-19|2026-11-26|2036)\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d+Z?|(?:, )?\b(?:in|for|overdue) \d[\w. ]*?(?=  |$|[;,])"
    r"|record \d+ is [\w ]+ in the future|process \d+|\d+(?:\.\d+)? (?:ms|s)\b|\s+\[ *\d+%\]"
    r"|(?<![\w-])[\w-]{22}(?![\w-])|(?<=:)\d{4,5}\b|[\d.]+ [KM]iB read"
    r"|[\d.]+ KiB(?=  (?!2026-11-19)\d{4}-)"  # How a client batches the records that it sends today depends on the machine.
)
OF_SHELL = re.compile(r"[|;&<>$`*]|^tidelog (?:job|serve|ui|sql)\b")
PORTS = re.compile(r"(?<![\w.])(9092|9404)\b")
PYTEST = "-m pytest -p tidelog.testing.plugin -p no:cacheprovider -p xdist.plugin"


class Block(NamedTuple):
    """A block of the page. `line` is its first line's number there."""

    kind: str
    title: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the page's blocks."""
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 2) for found in BLOCK.finditer(text)]


class Reader:
    """Somebody who types what the page says, in the folder `directory`."""

    def __init__(self, page: Path, directory: Path) -> None:
        self._page, self._directory = page, directory
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""
        self._ports: dict[str, str] = {}

    def follow(self) -> int:
        """Run all blocks; return the number of commands and programs. Raises AssertionError where the page is not true."""
        count = 0
        with contextlib.chdir(self._directory), contextlib.ExitStack() as at_the_end:
            at_the_end.callback(_end_processes, self._directory)
            for block in blocks(self._page):
                block = block._replace(text=PORTS.sub(self._port, block.text))
                if block.title:
                    Path(block.title).write_text(block.text)
                elif block.kind == "console":
                    for command, lines in _commands(block.text):
                        self._compare(block, command, lines, run(command))
                        count += 1
                elif block.kind == "python":
                    self._run(block)
                    count += 1
                elif block.kind == "text":
                    self._compare(block, "the program", block.text.splitlines(), self._printed)
        return count

    def _port(self, found: re.Match[str]) -> str:
        return self._ports.setdefault(found[0], str(free_port()))

    def _run(self, block: Block) -> None:
        code = "\n" * (block.line - 1) + block.text  # Errors name the page's lines.
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(self._page), "exec"), self._names)
        self._printed = printed.getvalue()

    def _compare(self, block: Block, what: str, lines: list[str], printed: str) -> None:
        left = iter([_plain(line) for line in printed.splitlines()])
        for line in lines:
            if line.strip() != "...":
                found = any(_is_shown(_plain(line), one) for one in left)
                assert found, f"{self._page.name}:{block.line}: {what}\nshown:\n{line}\nprinted:\n{printed}"


def run(command: str) -> str:
    """Return what a terminal shows for a command in the current folder."""
    if command.startswith("tidelog ") and not OF_SHELL.search(command):
        result = CliRunner().invoke(cli, shlex.split(command)[1:], obj=ManualClock(NOW))
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result.output
    line = re.sub(r"^pytest\b", f"python {PYTEST}", command)
    line = re.sub(r"^python (demo/\S+)", lambda match: f"python {shlex.quote(str(ROOT / match[1]))}", line)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path.cwd()), "COLUMNS": "120"}
    shell, both = ["bash", "-c", line], subprocess.STDOUT
    return subprocess.run(shell, env=env, stdout=subprocess.PIPE, stderr=both, text=True, timeout=PATIENCE_S, check=False).stdout


def _end_processes(directory: Path) -> None:
    """End the processes that a page which failed has left behind."""
    for file in directory.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console block with the lines that follow it; a line that ends in a backslash goes on."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif found:
            found[-1][1].append(line)
    return found


def _is_shown(shown: str, printed: str) -> bool:
    return printed.startswith(shown.removesuffix("...").rstrip()) if shown.endswith("...") else printed == shown


def _plain(line: str) -> str:
    return PADDING.sub(" ", VARYING.sub("", line)).strip()
