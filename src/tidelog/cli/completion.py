"""Shell completion of commands, options, times, time zones, topics, groups and folders; and `tidelog completion SHELL`.

At each Tab, a shell runs `tidelog` with the environment variable `_TIDELOG_COMPLETE`. The shell must not wait long, and no error
may appear in the prompt. So after `LIMIT_S`, or after any error, there are no suggestions.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class, split_arg_string

from tidelog.cli.printing.output import print_lines
from tidelog.model import is_hidden

VARIABLE = "_TIDELOG_COMPLETE"

LIMIT_S = float(os.environ.get("TIDELOG_COMPLETION_S", "2"))
"""Seconds that a shell may wait for suggestions: a broker may not respond."""

MOST = 1000
"""At most this many topics or groups are suggested."""


def complete(work: Callable[[], object]) -> None:
    """Print suggestions within `LIMIT_S` seconds. Print no errors."""
    timer = threading.Timer(LIMIT_S, os._exit, (0,))
    timer.daemon = True
    timer.start()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - not the path of a file
        sys.stderr = nowhere
        try:
            work()
        except Exception:
            sys.exit(0)
        finally:
            timer.cancel()


@add_completion_class
class TidelogBash(BashComplete):
    """Completion in bash, which splits words at the colon of HOST:PORT and replaces only the part after it. So this class parses
    the whole line.
    """

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' type value
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_CURRENT="${COMP_WORDS[COMP_CWORD]}" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def source(self) -> str:
        """Return the script."""
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the incomplete word at the cursor ("" after a space)."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """Return a suggestion, without the part of the word that bash does not replace."""
        incomplete, current = self.get_completion_args()[1], os.environ.get("COMP_CURRENT", "")
        kept = incomplete[: -len(current)] if current and incomplete.endswith(current) else ""
        return f"{item.type},{str(item.value).removeprefix(kept)}"


def suggest_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell suggest folders."""
    return [CompletionItem(incomplete, type="dir")]


def suggest_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest the topics of the command's folder or brokers. Suggest internal topics only if the typed word begins with "_"."""
    from tidelog.sources.opening import open_source

    place = _place(ctx)
    if place is None:
        return []
    with open_source(place) as source:
        names = sorted(source.topics())
    given = ctx.params.get(param.name or "") or ()
    return _items((name for name in names if name not in given and (incomplete[:1] == "_" or not is_hidden(name))), incomplete)


def suggest_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Suggest the consumer groups of the command's folder or brokers."""
    from tidelog.sources.opening import open_source

    place = _place(ctx)
    if place is None:
        return []
    with open_source(place) as source:
        names = sorted(listing.group for listing in source.groups().list())
    return _items(names, incomplete)


SUGGESTIONS = {"source": suggest_source, "topics": suggest_topics, "groups": suggest_groups}
"""The functions that suggest values of an argument or option, for `options.suggest`."""


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a SHELL: bash (4.4 or later), zsh or fish.

    \b
    bash, in ~/.bashrc:                     eval "$(tidelog completion bash)"
    zsh, in ~/.zshrc, after compinit:       eval "$(tidelog completion zsh)"
    fish, in ~/.config/fish/config.fish:    tidelog completion fish | source
    """  # noqa: D301
    found = get_completion_class(shell)
    assert found is not None
    print_lines([found(click.get_current_context().find_root().command, {}, "tidelog", VARIABLE).source().rstrip("\n")])


def _place(ctx: click.Context) -> str | None:
    return next((ctx.params[name] for name in ("source", "directory", "brokers") if ctx.params.get(name)), None)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:MOST]
