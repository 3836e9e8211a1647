"""A tutorial as a program: its blocks run from top to bottom in one folder, and print what the page shows.

- `console` blocks: each `$ command` runs in a shell. The lines after it must be among those that it printed, in that order; `...`
  stands for any lines, or for the rest of a line.
- `python` blocks are one program, which runs in the same folder. A `text` block shows what the one before it printed.

Widths of columns are not compared, nor are spans of time that depend on today, nor ports.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(console|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PADDING = re.compile(r" {2,}|\t")
TODAY = re.compile(r", (?:in|overdue|for) \d[\w ]*?(?=  |$)|record \d+ is [\w ]+ in the future|\d+(?:\.\d+)? (?:ms|s)\b")


class Block(NamedTuple):
    """A block of the page. `line` is its first line's number there."""

    kind: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the page's blocks that run, or show what the one before printed."""
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in BLOCK.finditer(text)]


class Reader:
    """Somebody who types what the page says, in the folder `directory`."""

    def __init__(self, page: Path, directory: Path) -> None:
        self._page, self._directory = page, directory
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""

    def follow(self) -> None:
        """Run all blocks. Raises AssertionError where the page is not true."""
        with contextlib.chdir(self._directory):
            for block in blocks(self._page):
                getattr(self, f"_{block.kind}")(block)

    def _console(self, block: Block) -> None:
        for command, lines in _commands(block.text):
            bin_dir = Path(sys.executable).parent
            env = {**os.environ, "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}", "TIDELOG": str(ROOT), "COLUMNS": "120"}
            done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=False)
            self._compare(block, command, lines, done.stdout + done.stderr)

    def _python(self, block: Block) -> None:
        code = "\n" * (block.line - 1) + block.text  # Errors name the page's lines.
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(self._page), "exec"), self._names)
        self._printed = printed.getvalue()

    def _text(self, block: Block) -> None:
        self._compare(block, "the program", block.text.splitlines(), self._printed)

    def _compare(self, block: Block, what: str, lines: list[str], printed: str) -> None:
        left = iter([_plain(line) for line in printed.splitlines()])
        for line in lines:
            if line.strip() != "...":
                assert any(_is_shown(_plain(line), one) for one in left), (
                    f"{self._page.name}:{block.line}: {what}\nshown:\n{line}\nprinted:\n{printed}"
                )


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
    return printed.startswith(shown.removesuffix("...")) if shown.endswith("...") else printed == shown


def _plain(line: str) -> str:
    return PADDING.sub(" ", TODAY.sub("", line)).strip()
