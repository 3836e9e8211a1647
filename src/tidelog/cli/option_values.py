"""Reports options whose value is missing or wrong on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, takewhile
from types import TracebackType

import click

from tidelog.errors import InvalidArgumentError

_HINTS = {"-f": "; to wait for new records, use --follow"}
"""A hint for an option that has another meaning in other tools: `tail -f`."""


class CommandContext(click.Context):
    """A context that adds itself to the errors of click's parser, which names no command in them."""

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        if isinstance(exc_value, click.UsageError) and exc_value.ctx is None:
            exc_value.ctx = self
        return super().__exit__(exc_type, exc_value, tb)


@contextmanager
def usage_errors(option: str = "") -> Iterator[None]:
    """Raise a UsageError, which ends the command with code 2, where the block raises InvalidArgumentError. The block must only
    check values of the command line. The message begins with `option` if it is given.
    """
    try:
        yield
    except InvalidArgumentError as error:
        raise click.UsageError(f"{option}: {error}" if option else str(error)) from None


def refuse_options_as_values(ctx: click.Context, args: list[str]) -> None:
    """Raise BadOptionUsage if the value of an option is the name of another option, as in `--output --json`.

    click takes the name for the value. A value that begins with a hyphen may be written `--grep=--json`.
    """
    options = {name: param for param in ctx.command.params if isinstance(param, click.Option) for name in param.opts}
    for name, value in pairwise(takewhile(lambda arg: arg != "--", args)):
        option = options.get(name)
        takes_value = option is not None and not option.is_flag and not option.count
        other = value.partition("=")[0]
        if takes_value and other.startswith("--") and (other in options or other in ctx.help_option_names):
            raise click.BadOptionUsage(name, f"option {name!r} requires an argument: found the option {other!r}", ctx)


def missing_value(error: click.BadOptionUsage) -> str:
    """Return the message for an option without its value. It shows the option's placeholder, or its choices."""
    message = error.message.rstrip(".")
    params = () if error.ctx is None else error.ctx.command.params
    option = next((param for param in params if error.option_name in param.opts), None)
    if error.ctx is None or option is None or "requires" not in message:
        return f"{message}."
    expected = option.make_metavar(error.ctx)
    if isinstance(option.type, click.Choice):
        choices = list(map(repr, option.type.choices))
        expected = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    return f"{message}{',' if ': found' in message else ':'} expected {expected}{_HINTS.get(error.option_name, '')}."
