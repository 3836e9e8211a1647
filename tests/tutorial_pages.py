"""The pages in docs/tutorials: every `console` block is run, in order, and shows what its commands print.

`python -m tests.tutorial_pages docs/tutorials/on-call.md` runs a page and writes the output into it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from click.testing import CliRunner

from tidelog.cli.app import cli
from tidelog.clock import ManualClock

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "docs" / "tutorials"
NOW = datetime(2026, 11, 19, 10, tzinfo=UTC)
"""The time at which the commands of a page run."""

VARYING = re.compile(r"(?<=  )(?P<topic_id>[\w-]{22})(?=  )|(?<=; )(?P<read>[\d.]+ [KM]iB)(?= read\n)")
STEADY = {"topic_id": "_EZh4BYZT86kK_89btujQg", "read": "125.3 KiB"}
"""What differs from run to run: topic ids are random, and how much a search reads is no promise."""

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(page: Path) -> str:
    """Run the commands of a page in a new folder; return its text with their output."""
    before, text = Path.cwd(), page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return BLOCK.sub(lambda block: f"```console\n{_block(block[1])}```", text)
        finally:
            os.chdir(before)


def _block(text: str) -> str:
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_output(command)}" for command in commands)


def _output(command: str) -> str:
    """Return what a terminal shows. `tidelog` runs in this process, at `NOW`; everything else in a shell."""
    if command.startswith("tidelog "):
        result = CliRunner().invoke(cli, shlex.split(command)[1:], obj=ManualClock(int(NOW.timestamp() * 1000)))
        assert isinstance(result.exception, SystemExit | None), result.exception
        return VARYING.sub(lambda match: STEADY[match.lastgroup or ""], result.output)
    line = re.sub(r"^python (\S+)", lambda match: f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / match[1]))}", command)
    ran = subprocess.run(line, shell=True, check=True, capture_output=True, text=True)
    return ran.stdout + ran.stderr


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(run_page(Path(name)), encoding="utf-8")
