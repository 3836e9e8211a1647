"""Texts of SQL: split into statements, checked, and the word `offset` quoted where it is the column.

What a session executes: queries, EXPLAIN, and statements that change only the session's memory (views, tables and macros made by
the user, variables). Everything that could write a file, change DuckDB's settings or load an extension is refused, here or by
DuckDB, whose configuration is locked (`session`). Reading files of this machine is allowed: `select … from 'prices.csv'`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError

if TYPE_CHECKING:
    import duckdb

_ALLOWED = ("SELECT", "EXPLAIN", "CREATE", "DROP", "SET", "MULTI")

_EXPLAINED = ("SELECT", "MULTI")

_EXPLAIN = re.compile(r"\s*explain\b(?:\s+analyze\b)?\s*(?:\((?P<options>[^)]*)\)\s*)?", re.IGNORECASE)

_CLAUSE = re.compile(r"\s*(?:\d|[$?(:])")
"""After the word `offset` where it begins the clause: a number, a parameter or an expression in parentheses."""


class Statement:
    """One statement that may be executed."""

    def __init__(self, text: str, kind: str) -> None:
        self.text = text
        self.kind = kind
        self.explained: str | None = None
        """The query that an EXPLAIN is about."""
        self.analyzes = False
        """Whether an EXPLAIN executes the query."""


def statements(connection: duckdb.DuckDBPyConnection, text: str) -> list[Statement]:
    """Return the statements of a text. Raises InvalidArgumentError for one that is refused, duckdb.Error for a syntax error."""
    found = []
    for one in connection.extract_statements(quoted_offset(text)):
        statement = Statement(one.query.strip().rstrip(";"), one.type.name)
        if statement.kind not in _ALLOWED:
            raise _refusal(statement.kind)
        if statement.kind == "EXPLAIN":
            _check_explain(connection, statement)
        found.append(statement)
    return found


def quoted_offset(text: str) -> str:
    """Return the text with the column `offset` quoted: the word is reserved in SQL, and `OFFSET 5` remains the clause."""
    import duckdb

    tokens = duckdb.tokenize(text)
    pieces, done = [], 0
    for start, kind in tokens:
        # DuckDB counts bytes where a text is not ASCII.
        at = start if text.isascii() else len(text.encode()[:start].decode("utf-8", "ignore"))
        word = text[at : at + len("offset")]
        rest = text[at + len(word) :]
        if word.lower() != "offset" or kind.name in ("string_const", "comment") or re.match(r"\w", rest):
            continue
        if _CLAUSE.match(rest) and not re.match(r"\s*::", rest):
            continue
        pieces += [text[done:at], f'"{word}"']
        done = at + len(word)
    return "".join([*pieces, text[done:]])


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
