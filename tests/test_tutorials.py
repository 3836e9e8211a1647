"""docs/tutorials: the files and commands of a tutorial, run in order in an empty folder, print what stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)(?: title=\"(\S+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = re.compile(
    r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?|in \d+\.\d+s|process \d+|in \d+\.\d+ s|cluster [\w-]{22}|\s+\[ *\d+%\]|(?<=:)\d{4,5}\b"
)
"""Times, durations, ids, ports; and the progress that pytest-xdist prints in another order."""

PLUGINS = ("-p", "tidelog.testing.plugin", "-p", "no:cacheprovider")


def run(command: str, folder: Path) -> str:
    words = shlex.split(command, comments=True)
    if words[0] == "pytest":
        words = [sys.executable, "-m", "pytest", *PLUGINS, "-p", "xdist.plugin", *words[1:]]
    elif words[0] in ("tidelog", "python"):
        words = [sys.executable, *(("-m", "tidelog") if words[0] == "tidelog" else ()), *words[1:]]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder), "COLUMNS": "80"}
    ran = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_is_true(page: Path, tmp_path: Path) -> None:
    commands = 0
    for kind, title, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            (tmp_path / title).write_text(text)
        elif kind == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                commands += 1
                printed = [VARIES.sub("", line).strip() for line in run(command, tmp_path).splitlines()]
                missing = [line for line in shown if line != "..." and VARIES.sub("", line).strip() not in printed]
                assert not missing, f"$ {command}\n" + "\n".join(printed)
    assert commands >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_has_twelve_tasks(page: Path) -> None:
    tasks = re.findall(r"^## (\d+)\. ", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert tasks == [str(number) for number in range(1, 13)]
