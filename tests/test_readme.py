"""The first screen of the README is true: its commands print what stands there, and its test passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_SCREEN = README.partition("\n## ")[0]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PADDING = re.compile(r" {2,}")  # columns are as wide as what stands in them
FROM_NOW = re.compile(r", (?:in|overdue|for) \d[\w ]*?(?=  )|record \d+ is [\w ]+ in the future")  # these depend on today


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the first command of the README has been run."""
    directory = tmp_path_factory.mktemp("readme")
    printed = run(["python", str(ROOT / "demo" / "orders.py"), "shop"], directory)
    assert printed.strip() in FIRST_SCREEN
    return directory


def run(command: list[str], directory: Path) -> str:
    bin_dir = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"}
    program = str(bin_dir / command[0])
    done = subprocess.run([program, *command[1:]], cwd=directory, env=env, check=True, capture_output=True, text=True)
    return done.stdout


def commands() -> list[tuple[str, list[str]]]:
    """Return each `$ tidelog ...` of the first screen, with the lines that follow it."""
    found = []
    for block in CONSOLE.findall(FIRST_SCREEN):
        for part in block.split("$ ")[1:]:
            command, *lines = part.splitlines()
            if command.startswith("tidelog "):
                found.append((command, [line for line in lines if line != "..."]))
    return found


def test_the_first_screen_has_its_two_commands() -> None:
    assert [command.split()[1] for command, _ in commands()] == ["cat", "retention"]


@pytest.mark.parametrize(("command", "lines"), commands(), ids=lambda value: value.split()[1] if isinstance(value, str) else "")
def test_a_command_prints_what_the_readme_shows(shop: Path, command: str, lines: list[str]) -> None:
    printed = [PADDING.sub("  ", FROM_NOW.sub("", line)) for line in run(command.split(), shop).splitlines()]
    shown = [PADDING.sub("  ", FROM_NOW.sub("", line)) for line in lines]
    assert shown, "the README shows some output"
    assert [line for line in shown if line not in printed] == []


def test_the_test_in_the_readme_passes() -> None:
    (source,) = PYTHON.findall(FIRST_SCREEN)
    names: dict[str, object] = {}
    exec(compile(source, "README.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_") and callable(value)]
    assert len(tests) == 1
    tests[0]()
