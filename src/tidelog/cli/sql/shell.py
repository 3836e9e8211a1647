"""The shell of `tidelog sql`: a statement ends with a semicolon, a command begins with a dot.

| key | |
|---|---|
| Enter | executes a complete statement, otherwise begins a new line |
| Tab | completes topics, columns, keywords |
| Up, Ctrl-R | recalls earlier statements, including those of earlier shells |
| Ctrl-C | cancels a running statement, or discards the typed one |
| Ctrl-D | ends the shell |

The history is in `$XDG_STATE_HOME/tidelog/sql_history` (~/.local/state), readable only by its owner.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import table
from tidelog.cli.printing.output import print_lines
from tidelog.cli.printing.rows import write_rows
from tidelog.errors import InvalidArgumentError, TidelogError
from tidelog.extras import imported_from
from tidelog.queries.results import Results, Wait
from tidelog.queries.session import Session
from tidelog.queries.statements import Statement, is_complete
from tidelog.user_folders import state_folder
from tidelog.zones import find_zone

if TYPE_CHECKING:
    import pyarrow as pa
    from prompt_toolkit import PromptSession

MOST_ROWS = 1000
"""The shell shows at most this many rows of a result, and prints a note if there are more."""

COMMANDS = {
    ".help": "this list",
    ".tables": "topics and the other tables",
    ".rows N": f"show at most N rows of a result [{MOST_ROWS:,}]",
    ".tz ZONE": "the time zone, such as Europe/Berlin",
    ".timing": "show how long statements take, or stop showing it",
    ".quit": "end the shell, as does Ctrl-D",
}


class Shell:
    """Reads statements from a terminal and shows their results. `opened` opens a session for a time zone."""

    def __init__(self, opened: Callable[[str | None], Session], zone: str | None, format_name: str) -> None:
        self._opened = opened
        self._format = format_name
        self._most_rows = MOST_ROWS
        self._shows_timing = True
        self._session = opened(zone)
        self._session.list_topics()

    def run(self) -> None:
        """Read and execute statements and dot commands until the end of input."""
        from tidelog.cli.sql.keyboard import Keyboard

        prompt = self._prompt()
        count = len(self._session.topics)
        print_lines(
            [f"{count:,} topic{'' if count == 1 else 's'}; times in {self._session.zone}. Statements end with ; .help for help"]
        )
        try:
            with Keyboard(prompt.app) as keyboard:
                goes_on = True
                while goes_on:
                    try:
                        goes_on = self._execute(prompt.prompt(handle_sigint=False).strip(), keyboard.wait)
                    except KeyboardInterrupt:
                        continue
                    except EOFError:
                        return
        finally:
            self._session.close()

    def _execute(self, text: str, wait: Wait) -> bool:
        """Execute what was typed; return False to end the shell. Errors are printed."""
        # A note is printed once per statement, not once per shell.
        notices.uninstall()
        notices.install()
        try:
            if text.startswith("."):
                return self._command(*text.split(maxsplit=1))
            with Results(self._session, wait) as results:
                for statement in self._session.statements(text):
                    self._show(results, statement)
        except KeyboardInterrupt:
            notices.print_line("cancelled")
        except BrokenPipeError:
            raise
        except (TidelogError, OSError) as error:
            notices.complain(str(error))
        return True

    def _show(self, results: Results, statement: Statement) -> None:
        began = time.monotonic()
        result = results.execute(statement)
        shown, is_cut = 0, False
        if result is not None:
            out = sys.stdout.buffer
            sys.stdout.flush()
            if statement.explained is not None:
                print_lines(line for batch in result.batches for line in batch.column(0).to_pylist())
            else:
                cut = _Cut(result.batches, self._most_rows)
                write_rows(result.schema.names, cut, out, "jsonl" if self._format == "jsonl" else "text")
                shown, is_cut = cut.rows, cut.is_cut
            out.flush()
        if is_cut:
            notices.note(f"only the first {shown:,} rows are shown: to see more, use .rows N; to write all, use --output FILE")
        if self._shows_timing:
            rows = f"{shown:,} row{'' if shown == 1 else 's'}, " if result is not None and statement.explained is None else ""
            notices.print_line(f"{rows}{time.monotonic() - began:.2f} s")

    def _command(self, name: str, argument: str = "") -> bool:
        argument = argument.strip().rstrip(";")
        if name in (".quit", ".exit"):
            return False
        if name == ".help":
            print_lines(table(None, COMMANDS.items()))
        elif name == ".tables":
            print_lines(self._session.table_names())
        elif name == ".timing":
            self._shows_timing = not self._shows_timing
            print_lines([f"timing: {'on' if self._shows_timing else 'off'}"])
        elif name == ".rows" and argument.isdigit():
            self._most_rows = int(argument)
        elif name == ".tz" and argument:
            find_zone(argument)
            before, self._session = self._session, self._opened(argument)
            before.close()
            self._session.list_topics()
            notices.note("views, tables and variables of this shell were dropped")
        else:
            raise InvalidArgumentError("unknown command", found=repr(f"{name} {argument}".strip()), expected=", ".join(COMMANDS))
        return True

    def _prompt(self) -> PromptSession[str]:
        with imported_from("sql", "prompt_toolkit"):
            from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
        from prompt_toolkit.lexers import PygmentsLexer
        from pygments.lexers.sql import SqlLexer

        from tidelog.cli.sql.completion import SqlCompleter

        keys = KeyBindings()

        def is_typed() -> bool:
            text = prompt.default_buffer.text.strip()
            return not text or text.startswith(".") or is_complete(text)

        @keys.add("enter", filter=Condition(is_typed))
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        file = history_file()
        prompt: PromptSession[str] = PromptSession(
            "tidelog> ",
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: "... ".rjust(width),
            history=InMemoryHistory() if file is None else FileHistory(file),
            completer=SqlCompleter(lambda: self._session, (name.split()[0] for name in COMMANDS)),
            complete_while_typing=False,
            lexer=None if "NO_COLOR" in os.environ else PygmentsLexer(SqlLexer),
            key_bindings=keys,
        )
        return prompt


class _Cut:
    """The first rows of a sequence of batches. Reads at most one more batch."""

    def __init__(self, batches: Iterator[pa.RecordBatch], most: int) -> None:
        self.rows = 0
        self.is_cut = False
        self._batches = batches
        self._most = most

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            left = self._most - self.rows
            if batch.num_rows > left:
                self.is_cut = True
                batch = batch.slice(0, left)
            self.rows += batch.num_rows
            yield batch
            if self.is_cut:
                return


def history_file() -> Path | None:
    """Return the history file, created if necessary; None if it cannot be written."""
    file = state_folder() / "sql_history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        notices.note(f"the history cannot be saved: {error.strerror} ({file})")
        return None
    return file
