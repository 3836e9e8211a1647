"""The shell of `tidelog sql` in a terminal of its own, as a person uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.cli.conftest import start
from tests.patience import PATIENCE_S
from tests.queries.logs import write_topics
from tidelog.cli.sql.completion import SqlCompleter
from tidelog.cli.sql.shell import COMMANDS
from tidelog.queries.session import Session

WHERE_IS_THE_CURSOR = b"\x1b[6n"


class Terminal:
    """A terminal of 40 lines, and the shell in it."""

    def __init__(self, folder: Path, state: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {"TERM": "xterm", "XDG_STATE_HOME": str(state), "NO_COLOR": "1"}
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = start("sql", folder, env=environment, start_new_session=True, preexec_fn=_take_terminal, **streams)
        os.close(slave)
        self._seen = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, pattern: str) -> str:
        """Return what was shown up to the end of the first match."""
        deadline = time.monotonic() + PATIENCE_S
        while (match := re.search(pattern.encode(), self._seen)) is None:
            assert time.monotonic() < deadline, self._seen[-3000:]
            if select.select([self._master], [], [], 0.2)[0]:
                shown = os.read(self._master, 1 << 16)
                if WHERE_IS_THE_CURSOR in shown:
                    os.write(self._master, b"\x1b[40;1R")
                self._seen += shown
        shown, self._seen = self._seen[: match.end()], self._seen[match.end() :]
        return shown.decode()

    def prompt(self) -> None:
        """Wait until the shell reads; what is typed earlier would be echoed by the terminal."""
        self.until(r"\?2004h")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("sql")
    write_topics(data_dir, 1)
    return data_dir


@pytest.fixture
def terminal(folder: Path, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(folder, tmp_path / "state")
    yield opened
    opened.close()


def test_a_session(terminal: Terminal, tmp_path: Path) -> None:
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
    again = Terminal(Path("/nowhere"), tmp_path / "state")
    again.until("tidelog: ")
    assert again.process.wait(PATIENCE_S) == 1
    again.close()


ENDLESS = "select count(*) from range(1000000000000) t(i) where hash(i) % 7 = 3;\r"


def test_ctrl_c(terminal: Terminal) -> None:
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


def test_what_is_typed_while_a_statement_runs_is_kept(terminal: Terminal) -> None:
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


def test_signals_do_not_end_the_shell(terminal: Terminal) -> None:
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
