"""Splits SQL into statements, checks them, and replaces `offset` and `moment(...)`.

`offset` is quoted where it means the column, because the word is reserved in SQL. `moment('yesterday 09:00')`, a time as people
write it, is replaced by the timestamp. DuckDB could call a Python function instead, but then reports an error when the process
ends.

A session executes queries, EXPLAIN, and statements that change only the session's memory: views, tables and macros of the user,
and variables. Statements that could write a file, change DuckDB's settings or load an extension are refused, here or by DuckDB,
whose configuration is locked (`session`). Reading files of this machine is allowed: `select … from 'prices.csv'`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError

if TYPE_CHECKING:
    import duckdb

_ALLOWED = ("SELECT", "EXPLAIN", "CREATE", "DROP", "SET", "MULTI")

_EXPLAINED = ("SELECT", "MULTI")

_EXPLAIN = re.compile(r"\s*explain\b(?:\s+analyze\b)?\s*(?:\((?P<options>[^)]*)\)\s*)?", re.IGNORECASE)

_OFFSET = re.compile(r"offset\b(?!\s*(?:[\d$?(]|:(?!:)))", re.IGNORECASE)
"""The word `offset`, unless it begins an OFFSET clause: there, a number, a parameter or an expression in parentheses follows."""

_MOMENT = re.compile(r"moment\s*\(\s*(?:'(?P<time>(?:[^']|'')*)'\s*\))?", re.IGNORECASE)


class Statement:
    """One statement that may be executed."""

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind
        self.explained: str | None = None
        """The query of an EXPLAIN, None for other statements."""
        self.analyzes = False
        """Whether this is EXPLAIN ANALYZE, which executes the query."""


def statements(connection: duckdb.DuckDBPyConnection, text: str, instant_ms: Callable[[str], int]) -> list[Statement]:
    """Split a text into statements. `instant_ms` parses the times in `moment(...)`.

    Raises InvalidArgumentError for a refused statement or an invalid time, duckdb.Error for a syntax error.
    """
    found = []
    for one in connection.extract_statements(replaced(text, instant_ms)):
        statement = Statement(one.query.strip().rstrip(";"), one.type.name)
        if statement.kind not in _ALLOWED:
            raise _refusal(statement.kind)
        if statement.kind == "EXPLAIN":
            _check_explain(connection, statement)
        found.append(statement)
    return found


def replaced(text: str, instant_ms: Callable[[str], int]) -> str:
    """Quote the column `offset` in a text, and replace `moment('...')`. The clause `OFFSET 5` is left alone."""
    import duckdb

    pieces, done = [], 0
    for start, kind in duckdb.tokenize(text):
        # DuckDB counts bytes.
        at = start if text.isascii() else len(text.encode()[:start].decode("utf-8", "ignore"))
        if at < done or kind.name in ("string_const", "comment"):
            continue
        moment = _MOMENT.match(text, at)
        if moment is not None:
            if moment["time"] is None:
                raise InvalidArgumentError("moment expects one text in quotes", expected="moment('yesterday 09:00')")
            pieces += [text[done:at], _instant(instant_ms(moment["time"].replace("''", "'")))]
            done = moment.end()
        elif _OFFSET.match(text, at):
            pieces += [text[done:at], f'"{text[at : at + 6]}"']
            done = at + 6
    return "".join([*pieces, text[done:]])


def _instant(time_ms: int) -> str:
    return f"make_timestamptz({time_ms * 1000})" if time_ms < 2**63 // 1000 else "TIMESTAMPTZ 'infinity'"


def is_complete(text: str) -> bool:
    """Whether typed text is complete: it ends in a semicolon that is neither in a string nor in a comment."""
    import duckdb

    text = text.rstrip()
    if not text.endswith(";"):
        return False
    try:
        tokens = duckdb.tokenize(text)
    except duckdb.Error:
        return True  # Executing it reports the error.
    return not tokens or tokens[-1][1].name == "operator"


def _check_explain(connection: duckdb.DuckDBPyConnection, statement: Statement) -> None:
    match = _EXPLAIN.match(statement.text)
    inner = [] if match is None else connection.extract_statements(statement.text[match.end() :])
    if match is None or len(inner) != 1 or inner[0].type.name not in _EXPLAINED:
        raise InvalidArgumentError("EXPLAIN must be followed by one query", found=repr(statement.text))
    statement.explained = statement.text[match.end() :]
    statement.analyzes = "analyze" in match.group().lower()


def _refusal(kind: str) -> InvalidArgumentError:
    hint = {
        "COPY": "to write a result to a file, use tidelog sql --output FILE",
        "EXPORT": "to write a result to a file, use tidelog sql --output FILE",
        "LOAD": "extensions cannot be loaded",
        "ATTACH": "other databases cannot be attached",
    }.get(kind, "SELECT, EXPLAIN, CREATE VIEW, CREATE TABLE and CREATE MACRO are allowed")
    return InvalidArgumentError(f"{kind} is refused, because queries are read-only: {hint}")
