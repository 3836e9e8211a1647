"""`tidelog completion SHELL`: the script that makes a shell complete `tidelog`."""

from __future__ import annotations

import click

from tidelog.cli.printing.output import print_lines


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a SHELL: bash (4.4 or later), zsh or fish.

    \b
    bash, in ~/.bashrc:                     eval "$(tidelog completion bash)"
    zsh, in ~/.zshrc, after compinit:       eval "$(tidelog completion zsh)"
    fish, in ~/.config/fish/config.fish:    tidelog completion fish | source
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    from tidelog.cli.app import cli
    from tidelog.cli.completion import VARIABLE

    found = get_completion_class(shell)
    assert found is not None
    print_lines([found(cli, {}, "tidelog", VARIABLE).source().rstrip("\n")])
