"""Suggests topics, columns, keywords and functions while a statement is typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tidelog.queries.session import PLAIN_NAME, Session
from tidelog.sources.selection.record_columns import COLUMNS, quoted

_WORD = re.compile(r'"[^"]*$|[\w.]*$')

_BEFORE_A_TABLE = re.compile(r"\b(from|join|describe|summarize)\s+$", re.IGNORECASE)

TIMES = ("moment('-1h')", "moment('yesterday 09:00')", "moment('today')")


class SqlCompleter(Completer):
    """Completes the word before the cursor. `session` returns the shell's session. `commands` are the commands that begin
    with a dot.
    """

    def __init__(self, session: Callable[[], Session], commands: Iterable[str]) -> None:
        self._session = session
        self._commands = tuple(commands)
        self._words: list[tuple[str, str]] | None = None
        self._reserved: set[str] = set()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.startswith("."):
            yield from _matching(before, [(name, "command") for name in self._commands])
            return
        match = _WORD.search(before)
        word = "" if match is None else match.group()
        tables = [(self._quoted(name), "table") for name in self._session().table_names()]
        if _BEFORE_A_TABLE.search(before[: len(before) - len(word)]):
            yield from _matching(word, tables)
        elif word:
            columns = [(f'"{name}"' if name == "offset" else name, "column") for name in COLUMNS]
            times = [(text, "time") for text in TIMES]
            yield from _matching(word, [*columns, *tables, *times, *self._known_words()])

    def _known_words(self) -> list[tuple[str, str]]:
        if self._words is None:
            session = self._session()
            keywords = session.query(
                "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved' ORDER BY 1"
            )
            functions = session.query(
                "SELECT DISTINCT function_name FROM duckdb_functions() "
                "WHERE function_type IN ('scalar', 'aggregate', 'macro') AND function_name ~ '^[a-z]' ORDER BY 1"
            )
            self._reserved = {name for (name,) in keywords}
            self._words = [*((name, "keyword") for (name,) in keywords), *((f"{name}(", "function") for (name,) in functions)]
        return self._words

    def _quoted(self, name: str) -> str:
        is_plain = name.startswith("tidelog.") or (PLAIN_NAME.fullmatch(name) and name.lower() not in self._reserved)
        return name if is_plain else quoted(name)


def _matching(word: str, candidates: Iterable[tuple[str, str]]) -> Iterator[Completion]:
    wanted = word.strip('"').lower()
    for text, kind in candidates:
        if text.strip('"').lower().startswith(wanted):
            yield Completion(text, start_position=-len(word), display_meta=kind)
