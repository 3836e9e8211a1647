"""Texts of SQL: split into statements, checked, and two words replaced.

`offset` is quoted where it is the column: the word is reserved in SQL. `moment('yesterday 09:00')`, a time as people write it,
becomes the instant. DuckDB could call a function for it, but complains when a process ends with one.

What a session executes: queries, EXPLAIN, and statements that change only the session's memory (views, tables and macros made by
the user, variables). Everything that could write a file, change DuckDB's settings or load an extension is refused, here or by
DuckDB, whose configuration is locked (`session`). Reading files of this machine is allowed: `select … from 'prices.csv'`.
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
"""The word where it does not begin the clause, which a number, a parameter or an expression in parentheses follows."""

_MOMENT = re.compile(r"moment\s*\(\s*(?:'(?P<time>(?:[^']|'')*)'\s*\))?", re.IGNORECASE)


class Statement:
    """One statement that may be executed."""

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind
        self.explained: str | None = None
        """The query that an EXPLAIN is about."""
        self.analyzes = False
        """Whether an EXPLAIN executes the query."""


def statements(connection: duckdb.DuckDBPyConnection, text: str, instant_ms: Callable[[str], int]) -> list[Statement]:
    """Return the statements of a text. `instant_ms` parses the times of `moment`.

    Raises InvalidArgumentError for a statement that is refused or a time that is none, duckdb.Error for a syntax error.
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
    """Return the text with the column `offset` quoted, and `moment('...')` replaced. `OFFSET 5` remains the clause."""
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
                raise InvalidArgumentError("moment takes one text in quotes", expected="moment('yesterday 09:00')")
            pieces += [text[done:at], _instant(instant_ms(moment["time"].replace("''", "'")))]
            done = moment.end()
        elif _OFFSET.match(text, at):
            pieces += [text[done:at], f'"{text[at : at + 6]}"']
            done = at + 6
    return "".join([*pieces, text[done:]])


def _instant(time_ms: int) -> str:
    return f"make_timestamptz({time_ms * 1000})" if time_ms < 2**63 // 1000 else "TIMESTAMPTZ 'infinity'"


def is_complete(text: str) -> bool:
    """Whether a person has finished a text: it ends in a semicolon that is neither in a string nor in a comment."""
    import duckdb

    text = text.rstrip()
    if not text.endswith(";"):
        return False
    try:
        tokens = duckdb.tokenize(text)
    except duckdb.Error:
        return True  # Executing it tells what is wrong.
    return not tokens or tokens[-1][1].name == "operator"


def _check_explain(connection: duckdb.DuckDBPyConnection, statement: Statement) -> None:
    match = _EXPLAIN.match(statement.text)
    inner = [] if match is None else connection.extract_statements(statement.text[match.end() :])
    if match is None or len(inner) != 1 or inner[0].type.name not in _EXPLAINED:
        raise InvalidArgumentError("EXPLAIN is for queries", found=repr(statement.text))
    statement.explained = statement.text[match.end() :]
    statement.analyzes = "analyze" in match.group().lower()


def _refusal(kind: str) -> InvalidArgumentError:
    hint = {
        "COPY": "a result is written by --output FILE",
        "EXPORT": "a result is written by --output FILE",
        "LOAD": "extensions are not loaded",
        "ATTACH": "other databases are not attached",
    }.get(kind, "SELECT, EXPLAIN, CREATE VIEW, CREATE TABLE and CREATE MACRO are for reading")
    return InvalidArgumentError(f"refused: {kind}; this only reads, and {hint}")
