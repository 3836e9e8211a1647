"""A message names what its reader typed: code that Python, Spark and the page use names no option of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tidelog"

COMMANDS_ONLY = (
    "cli",
    "capture",
    "check",
    "copying",
    "ingest",
    "restore",
    "spark/jobs",
    "testing/plugin.py",
    "web/endpoints/lines.py",
    "web/server.py",
)
"""Rooms and files that only commands use, and pytest's options."""

OTHER_PROGRAMS = ("decoding/schemaful/protobuf_schema.py", "records/kernel/primitives/build_stamp.py", "spark/java.py")
"""Files that call other programs, or name their commands."""

FILES = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if not path.relative_to(SOURCE).as_posix().startswith((*COMMANDS_ONLY, *OTHER_PROGRAMS))
]

OPTION = re.compile(r"(?<![\w-])--[a-z]")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the string constants of a file with their lines, except docstrings and other statements that are only a string."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


@pytest.mark.parametrize("room", sorted({path.relative_to(SOURCE).parts[0] for path in FILES}))
def test_no_option_of_the_command_line_is_named(room: str) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in FILES
        if path.relative_to(SOURCE).parts[0] == room
        for line, text in texts(path)
        # A whole command, such as `tidelog index rebuild --time-map`, is good advice to everybody.
        if OPTION.search(text) and "tidelog " not in text
    ]
    assert found == []
