"""The command group, and how every run ends.

| end | exit code | on stderr |
|---|---|---|
| an answer, including "none" | 0 | notices |
| an incomplete answer, or damage that was found or skipped | 3 | notices with the details |
| an error: damaged data, a missing topic, a full disk | 1 | one line, `tidelog: what (path at byte position)` |
| an invalid command line | 2 | one line, and how to get help |
| interrupted (Ctrl-C) | 130 | one line |
| the pipe was closed by its reader (`| head`) | 141 | nothing |
| terminated | 143 | nothing |

130, 141 and 143 are what a shell reports for the signals INT, PIPE and TERM. No run ends in a traceback: an unexpected error is
also one line, and `TIDELOG_TRACEBACK=1` shows where it occurred.

A command is a module of `commands` with an attribute `command`. It is imported when it is called, so that a command does not load
modules that only other commands need.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import FrameType
from typing import Any

import click

from tidelog.cli.lazy_group import Entry, LazyGroup
from tidelog.cli.option_values import missing_value
from tidelog.cli.printing import notices
from tidelog.errors import TidelogError

COMMANDS = {
    "serve": Entry("tidelog.cli.commands.serve", "Serve a data folder to Kafka clients."),
    "find": Entry("tidelog.cli.commands.find", "Find the offset for a time."),
    "cat": Entry("tidelog.cli.commands.cat", "Read every record of a time range, exactly."),
    "ls": Entry("tidelog.cli.commands.ls", "List topics and partitions, with sizes and times."),
    "sql": Entry("tidelog.cli.sql.command", "Query topics with SQL."),
    "stat": Entry("tidelog.cli.commands.stat", "Show offsets, records, bytes and largest timestamps."),
    "verify": Entry("tidelog.cli.commands.verify", "Check a data folder for missing or damaged data."),
    "dump": Entry("tidelog.cli.commands.dump", "Show one file of a log, entry by entry."),
    "retention": Entry("tidelog.cli.commands.retention", "Show when each segment is deleted, and which record keeps it."),
    "ui": Entry("tidelog.cli.commands.ui", "Show topics by time, on a page in a browser."),
    "groups": Entry("tidelog.cli.commands.groups", "Show how far behind consumer groups are; set their offsets to a time."),
    "index": Entry("tidelog.cli.commands.index", "Verify or rebuild indexes and time maps."),
    "import": Entry("tidelog.cli.commands.import_", "Write a Parquet, CSV or JSON Lines file as a new topic."),
    "restore": Entry("tidelog.cli.restore.command", "Restore a backup to a point in time, into a folder or a cluster."),
    "handover": Entry("tidelog.cli.commands.handover", "Hand topics over to Apache Kafka (KRaft)."),
    "format": Entry("tidelog.cli.commands.format_", "Format a data folder for a broker of a cluster."),
    "backup": Entry("tidelog.cli.backup", "Back up brokers or a folder; list, verify and expire backups."),
    "job": Entry("tidelog.cli.job", "Run jobs over whole folders on Spark."),
    "completion": Entry("tidelog.cli.completion", "Print the completion script for bash, zsh or fish."),
}
"""The commands in the order of `tidelog --help`."""

ALIASES = {"topics": "ls"}
"""Aliases of commands. The help does not list them."""

ASK_AGAIN_SECONDS = 0.02
"""Seconds until Terminated is raised again, because a module that is being imported may swallow the exception."""

SLOW_SECONDS = 2.0
"""A command that takes longer than this (s) prints a note if its kernel is not compiled."""

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_PIPE_CLOSED = 128 + signal.SIGPIPE
EXIT_TERMINATED = 128 + signal.SIGTERM


_received: set[signal.Signals] = set()
"""The signals that ended this run."""


class Terminated(BaseException):
    """The process received SIGTERM. Raised as an exception, so that incomplete files are removed."""


class Program(click.Command):
    """A command group whose `main` ends the process as the table above says."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        prog_name = prog_name or "tidelog"
        if "_TIDELOG_COMPLETE" in os.environ:
            from tidelog.cli.completion import complete

            complete(lambda: super(Program, self).main(args, prog_name, complete_var, **extra))
        if not standalone_mode:
            # The caller handles click's exceptions.
            return super().main(args, prog_name, complete_var, standalone_mode=standalone_mode, **extra)
        arguments = list(sys.argv[1:] if args is None else args)

        if "--log-format=json" in arguments or ("--log-format", "json") in pairwise(arguments):
            # Known before the arguments are parsed, so that errors in them are JSON, too.
            from tidelog.cli.printing.log_lines import json_log_line

            notices.write_json(json_log_line)

        def work() -> None:
            with self.make_context(prog_name, arguments, **extra) as ctx:
                self.invoke(ctx)

        sys.exit(run(work))


class Application(Program, LazyGroup):
    """The group `tidelog`."""

    entries = COMMANDS
    aliases = ALIASES


@click.group("tidelog", cls=Application, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=lambda ctx, param, value: _show_version(ctx, value),
    help="Show the version and which kernel runs.",
)
def cli() -> None:
    """Serve Kafka clients, and read Kafka's log files by time, with or without a broker.

    DIR is a data folder: what Kafka calls log.dir, a copy or a backup of it. Only `serve`, `import`, `index rebuild`, some
    jobs (their help says so) and `handover` write to DIR. `handover` recovers DIR if necessary, and stores its progress in
    DIR. HOST:PORT is any Kafka-compatible broker. Times are given as 2013-07-10T09:30 (UTC), yesterday 09:00, now, -90m, epoch
    milliseconds. `tidelog completion` prints a script for shell completion.
    """


def _show_version(ctx: click.Context, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    from tidelog.records.kernel import COMPILED

    click.echo(f"tidelog {version('tidelog')}")
    click.echo(f"kernel: {'compiled' if COMPILED else f'interpreted ({notices.WITHOUT_COMPILER})'}")
    ctx.exit()


def run(work: Callable[[], None]) -> int:
    """Run one command and return its exit code. All errors of the command are printed, none is raised."""
    _relax_text_streams()
    previous = _raise_when_terminated()
    notices.install()
    began = time.monotonic()
    try:
        return _run(work)
    finally:
        if time.monotonic() - began > SLOW_SECONDS:
            notices.note_interpreted()
        notices.uninstall()
        notices.write_json()
        for number, handler in previous.items():
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(number, handler)


def _run(work: Callable[[], None]) -> int:
    try:
        work()
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        return _flushed(end.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        # Print the whole help, on stderr, because no command was given.
        error.show()
        return EXIT_USAGE
    except click.UsageError as error:
        _complain(_usage(error), f"Try '{error.ctx.command_path if error.ctx else 'tidelog'} --help'.")
        return EXIT_USAGE
    except click.ClickException as error:
        _complain(error.format_message())
        return EXIT_ERROR
    except TidelogError as error:
        _complain(str(error))
        return EXIT_ERROR
    except (KeyboardInterrupt, click.Abort):
        return _interrupted()
    except Terminated:
        return EXIT_TERMINATED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    except OSError as error:
        _complain(_os_error(error))
        _forget_stdout()
        return EXIT_ERROR
    except MemoryError:
        _complain("out of memory")
        return EXIT_ERROR
    except Exception as error:
        # A library may turn the exception that a signal raised into one of its own, as DuckDB does.
        if signal.SIGINT in _received:
            return _interrupted()
        if signal.SIGTERM in _received:
            return EXIT_TERMINATED
        if os.environ.get("TIDELOG_TRACEBACK"):
            raise
        _complain(f"unexpected {type(error).__name__}: {error} (TIDELOG_TRACEBACK=1 shows where)")
        return EXIT_ERROR
    return 0


def _interrupted() -> int:
    _complain("interrupted")
    return EXIT_INTERRUPTED


def _flushed(exit_code: int) -> int:
    """Flush standard output after `--help` or `--version`. Return `exit_code`, or that of a failed flush: the pipe may be closed,
    or the disk full.
    """
    return _run(sys.stdout.flush) or exit_code if sys.stdout is not None else exit_code


def _usage(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        from tidelog.cli.option_names import no_such_option

        return no_such_option(error)
    message = missing_value(error) if isinstance(error, click.BadOptionUsage) else " ".join(error.format_message().split())
    if isinstance(error, click.MissingParameter) and error.param is not None and error.param.name in ("topic", "topics"):
        message = f"{message.rstrip('.')}; to list the topics, run tidelog ls."
    return message[:1].lower() + message[1:]


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    names = [os.fspath(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes | os.PathLike)]
    places = [os.fsdecode(name) for name in names]
    return f"{reason} ({' -> '.join(places)})" if places else reason


def _complain(message: str, *more: str) -> None:
    notices.complain(message)
    for line in more:
        notices.print_line(line)


def _forget_stdout() -> None:
    """Redirect standard output to /dev/null. The pipe's reader is gone, and Python's flush at exit would fail again."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _relax_text_streams() -> None:
    """Show characters that the terminal's encoding lacks in escaped form, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _raise_when_terminated() -> dict[signal.Signals, Any]:
    """Make SIGTERM raise Terminated, and record SIGTERM and SIGINT. Return the handlers to restore."""
    _received.clear()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _received.add(signal.SIGINT)
        raise KeyboardInterrupt

    def terminate(number: int, frame: FrameType | None) -> None:
        _received.add(signal.SIGTERM)
        # A module that is being loaded may swallow the exception, and the run would continue: raise it a little later. Again and
        # again, as the alarm may come just before a system call, which would wait and never see it.
        again_s = ASK_AGAIN_SECONDS if _is_importing(frame) else 0.0
        signal.setitimer(signal.ITIMER_REAL, again_s, again_s)
        if not again_s:
            raise Terminated

    handlers = {signal.SIGTERM: terminate, signal.SIGALRM: terminate}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = interrupt
    try:
        return {number: signal.signal(number, handler) for number, handler in handlers.items()}
    except ValueError:
        # If this is not the main thread, the surrounding program handles signals.
        return {}


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
