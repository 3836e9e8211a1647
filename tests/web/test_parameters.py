"""A request's parameters: unknown names are errors.

A name that nobody reads would be ignored in silence: with `strat=-15m` the whole topic would be read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.conftest import FOLDER, Answers
from tidelog import web
from tidelog.clock import SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.web.app import ENDPOINTS
from tidelog.web.query import NAMES, Query

READERS = {name for name in vars(Query) if not name.startswith("_")}


def names_in(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from names_in(node.body)
        yield from names_in(node.orelse)


def names_read() -> Iterator[str]:
    """Return the names in calls such as `query.text("topic")`; within `Query` itself, `self.text("tz")`."""
    for file in Path(web.__file__).parent.rglob("*.py"):
        asked = "self" if file.name == "query.py" else "query"
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(ast.Attribute(ast.Name(of), method), [first, *_]) if of == asked and method in READERS:
                    yield from names_in(first)


def test_the_known_names_are_those_that_are_read() -> None:
    assert set(names_read()) == NAMES


def test_an_unknown_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"unknown parameter: strat \(did you mean start\?\)"):
        Query([("topic", "orders"), ("strat", "-15m")], SystemClock())


VALID = {
    "source": FOLDER,
    "topic": "two-partitions",
    "partition": "0",
    "offset": "0",
    "timestamp": "0",
    "part": "value",
    "group": "g",
}

ALL_VALID = {"topic", "group", "source", "key", "header", "q", "last"}
"""The parameters of which every text is valid, or names something that may not exist; `last` is only for `tail`."""


@pytest.mark.parametrize("name", sorted(NAMES - ALL_VALID))
def test_an_error_names_the_parameter(golden: Answers, name: str) -> None:
    refusals = 0
    for path in (*ENDPOINTS, "export", "bytes"):
        found = golden.client.get(f"/api/{path}", params={**VALID, name: "1=("})
        # A path that does not read the parameter may answer something else.
        if found.status_code == 400:
            error = found.json()["error"]
            assert name in error["what"], path
            assert "--" not in str(error), path
            refusals += 1
    assert refusals
