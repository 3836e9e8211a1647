"""How every run ends: exit codes, one line for an error, nothing but an answer otherwise."""

from __future__ import annotations

import ctypes
import importlib
import io
import os
import signal
import subprocess
import sys
from itertools import repeat
from pathlib import Path

import click
import pytest

from tests.cli.conftest import ROOT, run, run_ok, run_process, start
from tests.patience import PATIENCE_S
from tidelog.cli import app
from tidelog.cli.printing import notices
from tidelog.errors import CorruptBatchError, StorageError


def raising(error: BaseException) -> int:
    def work() -> None:
        raise error

    return app.run(work)


@pytest.mark.parametrize(
    ("error", "exit_code", "stderr"),
    [
        (
            CorruptBatchError("the batch checksum does not match", path="a/0.log", position=61, found="0x1", expected="0x2"),
            1,
            "tidelog: the batch checksum does not match: found 0x1, expected 0x2 (a/0.log at byte 61)\n",
        ),
        (
            StorageError("cannot write: No space left on device", path="out"),
            1,
            "tidelog: cannot write: No space left on device (out)\n",
        ),
        (PermissionError(13, "Permission denied", "/root/x"), 1, "tidelog: Permission denied (/root/x)\n"),
        (OSError("odd"), 1, "tidelog: odd\n"),
        (MemoryError(), 1, "tidelog: out of memory\n"),
        (KeyError("bug"), 1, "tidelog: unexpected KeyError: 'bug' (TIDELOG_TRACEBACK=1 shows where)\n"),
        (RecursionError("deep"), 1, "tidelog: unexpected RecursionError: deep (TIDELOG_TRACEBACK=1 shows where)\n"),
        (click.ClickException("no"), 1, "tidelog: no\n"),
        (click.UsageError("No such thing."), 2, "tidelog: no such thing.\nTry 'tidelog --help'.\n"),
        (KeyboardInterrupt(), 130, "tidelog: interrupted\n"),
        (click.Abort(), 130, "tidelog: interrupted\n"),
        (app.Terminated(), 143, ""),
    ],
)
def test_endings(error: BaseException, exit_code: int, stderr: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(error) == exit_code
    assert capsys.readouterr().err == stderr


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_library_that_makes_an_error_of_a_signal(number: signal.Signals, exit_code: int) -> None:
    """DuckDB raises a RuntimeError, "Query interrupted"."""

    def work() -> None:
        try:
            signal.raise_signal(number)
        except BaseException:
            raise RuntimeError("Query interrupted") from None

    assert app.run(work) == exit_code
    assert raising(RuntimeError("by itself")) == 1


def test_an_error_is_one_line_whatever_is_in_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(StorageError("cannot\nwrite", path="a\x1b[31m\r\nb")) == 1
    assert capsys.readouterr().err == "tidelog: cannot\\nwrite (a\\x1b[31m\\r\\nb)\n"


def test_an_unforeseen_error_shows_its_place_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_TRACEBACK", "1")
    with pytest.raises(KeyError):
        raising(KeyError("bug"))


def test_notices_of_lower_layers_are_notes_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    def work() -> None:
        for _ in range(2):
            logging.getLogger("tidelog.log").warning("%s: damaged, ignored", "a.timeindex")
        logging.getLogger("tidelog.log").info("not worth a line")
        logging.getLogger("other").error("not ours")
        notices.note("said")

    assert app.run(work) == 0
    captured = capsys.readouterr()
    assert captured.err == "note: a.timeindex: damaged, ignored\nnote: said\n"
    assert captured.out == ""
    logging.getLogger("tidelog.log").warning("after the run nobody listens")
    assert "nobody" not in capsys.readouterr().err


def test_help_and_version() -> None:
    ran = run_ok("--help")
    assert "Usage: tidelog [OPTIONS] COMMAND [ARGS]..." in ran.stdout
    for command in app.COMMANDS:
        assert f"\n  {command} " in ran.stdout
    ran = run_ok("--version")
    assert ran.lines[0].startswith("tidelog ")
    assert ran.lines[1] in ("kernel: compiled", "kernel: interpreted")


@pytest.mark.parametrize("args", [["frobnicate"], ["find"], ["find", "a"], ["--nonsense"], ["find", "a", "b", "--nonsense"]])
def test_usage_errors(args: list[str]) -> None:
    ran = run(*args)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.error
    assert ran.stderr.splitlines()[-1].endswith("--help'.")
    assert len(ran.stderr.splitlines()) == 2


def test_no_command_shows_the_help() -> None:
    ran = run()
    assert ran.exit_code == 2
    assert "Commands:" in ran.stderr


def test_help_into_a_closed_pipe_and_onto_a_full_disk() -> None:
    with start("--help") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    if Path("/dev/full").exists():
        with Path("/dev/full").open("wb") as full:
            ran = run_process("--help", stdout=full)
        assert ran.exit_code == 1
        assert ran.stderr == "tidelog: No space left on device\n"


def test_closed_standard_streams() -> None:
    for redirection in (">&-", "2>&-", ">&- 2>&-", "<&-"):
        command = f"'{sys.executable}' -m tidelog --version {redirection}"
        ran = subprocess.run(
            ["sh", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, timeout=PATIENCE_S
        )
        assert ran.returncode == 0, redirection
        assert ran.stderr == b""


def test_the_signal_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert app.run(lambda: None) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_terminated_while_a_module_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that try imports swallow whatever is raised in them; the request to end is not lost.

    Nor is it if the signal that repeats it comes just before a system call, which then waits: here two of them wait in one call
    of Python's, which sees no signal between them.
    """
    (tmp_path / "loaded_slowly.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except BaseException:\n"
        "    pass\n"
    )  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    done = []
    waited: list[int] = []
    poll = ctypes.CDLL(None).poll

    def work() -> None:
        done.append(importlib.import_module("loaded_slowly"))
        waited.extend(map(poll, (None, None), (0, 0), repeat(PATIENCE_S * 1000)))

    assert app.run(work) == 143
    assert done, "the module was loaded to its end"
    assert 0 not in waited, "a system call waited to its end"


def test_importing_tidelog_loads_nothing_heavy() -> None:
    code = (
        "import sys, tidelog; print([m for m in ('numpy', 'pyarrow', 'pyspark', 'asyncio', 'rich', 'click') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_every_command_is_listed_without_loading_what_it_needs() -> None:
    code = (
        "import sys\nfrom tidelog.cli.app import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'pyarrow', 'pyspark', 'asyncio', 'rich') if m in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stderr == "[]\n"


def test_listing_the_commands_imports_none_of_them() -> None:
    """The help's lines stand in a table: `tidelog --help` costs an eighth of a second, whatever a command needs."""
    code = (
        "import sys\nfrom tidelog.cli.app import COMMANDS, cli\nfrom tidelog.cli.job import JOBS\n"
        "for args in ['--help'], ['job', '--help']:\n    try: cli.main(args)\n    except SystemExit: pass\n"
        "known = {one.module for one in (*COMMANDS.values(), *JOBS.values())} - {'tidelog.cli.job'}\n"
        "print(sorted(known & set(sys.modules)), 'tidelog.records.kernel' in sys.modules, file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stderr == "[] False\n"


def test_short_commands_import_no_more_than_they_need() -> None:
    """A first answer takes as long as the imports before it."""
    heavy = ("pyarrow", "pyarrow.compute", "pyspark", "asyncio", "rich", "duckdb", "click.shell_completion", "configparser")
    heavy += tuple(f"tidelog.objects.{name}" for name in ("object_file", "object_store", "disk_cache", "read_ahead", "settings"))
    code = (
        "import sys\nfrom tidelog.cli.app import cli\n"
        "try: cli.main(sys.argv[1:])\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    folder = str(ROOT / "tests" / "golden" / "kafka-3.9.1" / "log")
    for args, needed in (
        (["ls", folder, "empty"], []),
        (["find", folder, "two-partitions", "--at", "latest"], []),
        (["cat", folder, "two-partitions", "-n", "1"], ["pyarrow"]),
    ):
        command = [sys.executable, "-c", code, *args]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ran.stderr == f"{needed}\n"


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("is_slow", [True, False])
def test_a_slow_command_says_that_its_kernel_is_interpreted(
    is_compiled: bool, is_slow: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tidelog.records import kernel

    monkeypatch.setattr(kernel, "COMPILED", is_compiled)
    monkeypatch.setattr(app, "SLOW_SECONDS", -1 if is_slow else 1000)
    assert app.run(lambda: None) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (is_slow and not is_compiled)
    assert all(line.startswith("note: ") and "no C compiler" in line for line in said)
    ran = run_ok("--version")
    assert ran.lines[1].startswith("kernel: compiled" if is_compiled else "kernel: interpreted (no C compiler")


@pytest.mark.parametrize(
    ("args", "suggested"),
    [
        (["cat", "d", "t", "--limit", "5"], "(did you mean -n?)"),
        (["cat", "d", "t", "--since", "-1h"], "(did you mean --from?)"),
        (["cat", "d", "t", "--partitions", "1"], "(did you mean --partition or "),
        (["cat", "-b", "localhost:9092"], "give it as an argument, tidelog cat DIR|HOST:PORT TOPIC..."),
        (["job", "latency", "d", "--topic", "t"], "give it as an argument, tidelog job latency DIR [TOPIC]"),
        (["backup", "d", "s3://b/x", "-X", "region=r"], "the options of TARGET's bucket are read from --target-config FILE"),
        (["find", "d", "t", "--time", "now"], "(did you mean --at?)"),
        (["stat", "d", "--zzz"], "no such option '--zzz'."),
        (["cat", "d", "t", "-o", "beginning"], "looks like an offset: use --offset"),
        (["cat", "d", "t", "-p", "0,1"], "for several partitions, repeat the option: -p 0 -p 1"),
        (["stat", "d", "t", "-p", "2147483648"], "one number from 0 to 2147483647"),
        (["find", "d"], "missing argument 'TOPIC'; to list the topics, run tidelog ls."),
        (["cat", "d", "t", "-o", "-5"], "looks like an offset: use --offset"),
        (["cat", "d", "t", "-o", "s@2026-11-19T09:00"], "looks like an offset: use --offset"),
        (["cat", "d", "t", "-o", "t.xlsx"], ".xlsx is not the extension of a known format"),
        (["sql", "d", "select 1", "-o", "t.csv.gz"], ".gz is not the extension of a known format"),
        (["cat", "d", "t", "-f", "--tail", "2"], "to wait for new records, use --follow"),
        (["cat", "d", "t", "--by", "1m"], "(did you mean --every?)"),
        (["consume", "d", "t"], "no such command 'consume' (did you mean cat?)"),
        (["tail", "d", "t"], "(did you mean cat --tail?)"),
        (["-L", "-b", "localhost:9092"], "(did you mean tidelog ls?)"),
        (["groups", "d"], "no such command 'd'; the commands are describe, lag, "),
        (["index", "verfy"], "(did you mean verify?)"),
    ],
)
def test_options_of_other_tools_and_misspelt_ones(args: list[str], suggested: str) -> None:
    ran = run(*args)
    assert ran.exit_code == 2
    assert suggested in ran.error


class _ClosedPipe(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        raise BrokenPipeError(32, "Broken pipe")


FOLDER = ROOT / "tests" / "golden" / "kafka-3.9.1" / "log"


@pytest.mark.parametrize(
    "line",
    [
        "ls {0}",
        "stat {0} empty",
        "find {0} empty --at now",
        "cat {0} two-partitions",
        "cat {0} two-partitions --count",
        "cat {0} two-partitions --format parquet",
        "verify {0} empty",
        "dump {0}/two-partitions-0/00000000000000000157.log",
        "retention {0} empty",
        "groups list {0}",
        "index verify {0} empty",
        "completion bash",
        "--help",
    ],
)
def test_a_closed_pipe_ends_every_command_quietly(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(_ClosedPipe(), 64), write_through=True))
    with pytest.raises(SystemExit) as ended:
        app.cli.main([part.format(FOLDER) for part in line.split()])
    assert ended.value.code == app.EXIT_PIPE_CLOSED
    said = [text for text in capsys.readouterr().err.splitlines() if " = " not in text and not text.startswith("note: ")]
    assert said == []
    monkeypatch.undo()
