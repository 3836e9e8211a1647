"""The shell of `tidelog sql` in a terminal of its own, as a person uses it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.cli.conftest import ROOT
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE_S
from tests.queries.logs import write_topics
from tidelog.cli.sql.completion import SqlCompleter
from tidelog.cli.sql.shell import COMMANDS
from tidelog.queries.session import Session


class SqlShell(Terminal):
    """`tidelog sql FOLDER` in a terminal."""

    def __init__(self, folder: Path, state: Path) -> None:
        settings = {"TERM": "xterm", "XDG_STATE_HOME": str(state), "NO_COLOR": "1"}
        path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        super().__init__([sys.executable, "-m", "tidelog", "sql", str(folder)], {**os.environ, "PYTHONPATH": path, **settings})

    def prompt(self) -> None:
        """Wait until the shell reads; what is typed earlier would be echoed by the terminal."""
        self.until(r"\?2004h")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("sql")
    write_topics(data_dir, 1)
    return data_dir


@pytest.fixture
def terminal(folder: Path, tmp_path: Path) -> Iterator[SqlShell]:
    opened = SqlShell(folder, tmp_path / "state")
    yield opened
    opened.close()


def test_a_session(terminal: SqlShell, tmp_path: Path) -> None:
    terminal.until(r"2 topics; times in UTC")
    terminal.prompt()
    terminal.type("select count(*) * 1000 + 7 as n\r")
    terminal.until(r"\.\.\.")
    terminal.type("from range(5);\r")
    terminal.until(r"5007[\s\S]*1 row, \d+\.\d\d s")

    terminal.prompt()
    terminal.type("select * from ordrs;\r")
    terminal.until(r"tidelog: no topic or table ordrs \(did you mean orders\?\)")

    terminal.prompt()
    terminal.type(".rows 3\r")
    terminal.prompt()
    terminal.type("from range(10);\r")
    terminal.until(r"note: only the first 3 rows are shown")
    terminal.until(r"3 rows, ")

    terminal.prompt()
    terminal.type(".tz Europe/Berlin\r")
    terminal.prompt()
    terminal.type("select moment('2013-07-10 09:00') as t;\r")
    terminal.until(r"2013-07-10T09:00:00.000\+02:00")

    terminal.prompt()
    terminal.type(".timing\r")
    terminal.until(r"timing: off")

    terminal.prompt()
    terminal.type(".tabels\r")
    terminal.until(r"tidelog: unknown command")
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.process.wait(PATIENCE_S) == 0

    history = tmp_path / "state" / "tidelog" / "sql_history"
    assert "+from range(5);" in history.read_text() and history.stat().st_mode & 0o077 == 0
    again = SqlShell(Path("/nowhere"), tmp_path / "state")
    again.until("tidelog: ")
    assert again.process.wait(PATIENCE_S) == 1
    again.close()


ENDLESS = "select count(*) from range(1000000000000) t(i) where hash(i) % 7 = 3;\r"


def test_ctrl_c(terminal: SqlShell) -> None:
    terminal.prompt()
    terminal.type("select 'what was typed\x03")
    terminal.prompt()
    # In one write with Enter: the prompt reads both.
    terminal.type(ENDLESS + "\x03")
    terminal.until("cancelled")
    terminal.prompt()
    terminal.type(ENDLESS)
    terminal.until(r"= 3;[\s\S]*\?2004l")  # The prompt has ended.
    terminal.type("\x03")
    terminal.until("cancelled")
    terminal.prompt()
    terminal.type(ENDLESS)
    for _ in range(50):
        terminal.type("\x03")
    terminal.until("cancelled")
    terminal.type("\x03" * 50 + "select 40 + 2 as answer;\r")
    terminal.until(r"answer\s+42")


def test_what_is_typed_while_a_statement_runs_is_kept(terminal: SqlShell) -> None:
    terminal.prompt()
    terminal.type(ENDLESS + "select 40 + 2 as answer;\rselect 3 * 5 as next;\r" + ENDLESS)
    terminal.until(r"= 3;[\s\S]*\?2004l")
    terminal.type("\x03")
    terminal.until("cancelled")
    terminal.until(r"answer\s+42")
    terminal.until(r"next\s+15")
    terminal.until(r"= 3;[\s\S]*\?2004l")
    terminal.type("select 7 * 7 as last;\r\x03")
    terminal.until("cancelled")
    terminal.until(r"last\s+49")


def test_signals_do_not_end_the_shell(terminal: SqlShell) -> None:
    terminal.prompt()
    terminal.type("select 6 * 7 as first; " + ENDLESS)
    terminal.until(r"first\s+42[\s\S]* s\r\n")
    terminal.process.send_signal(signal.SIGINT)
    terminal.until("cancelled")
    terminal.prompt()
    terminal.process.send_signal(signal.SIGINT)
    terminal.prompt()
    terminal.type("select 40 + 2 as answer;\r")
    terminal.until(r"answer\s+42")


def test_completion(folder: Path) -> None:
    with Session(folder) as session:
        completer = SqlCompleter(lambda: session, [one.split()[0] for one in COMMANDS])

        def suggested(text: str) -> list[str]:
            return [one.text for one in completer.get_completions(Document(text), CompleteEvent())]

        assert suggested("select * from ord") == ["orders"]
        others = [f"tidelog.{name}" for name in ("records", "topics", "partitions", "segments")]
        assert suggested("select * from ") == ["orders", '"pay.ments-1"', *others]
        assert suggested('select * from "pay') == ['"pay.ments-1"']
        assert suggested("select off")[:1] == ['"offset"']
        assert "timestamp" in suggested("select t")
        assert "date_trunc(" in suggested("select date_tr")
        assert "distinct" in suggested("select dist")
        assert "moment('-1h')" in suggested("where timestamp > mom")
        assert suggested(".ta") == [".tables"]
