"""Suggests options and commands for unknown names: similar names, and Tidelog's names for options of other tools."""

from __future__ import annotations

import click

from tidelog.near_names import did_you_mean

ELSEWHERE = {
    "--limit": "-n",
    "--max-messages": "-n",
    "--head": "-n",
    "--lines": "-n",
    "-c": "-n",
    "--last": "--tail",
    "--since": "--from",
    "--start-time": "--from",
    "--start": "--from",
    "--after": "--from",
    "--from-beginning": "--offset",
    "--until": "--to",
    "--end-time": "--to",
    "--end": "--to",
    "--before": "--to",
    "--timestamp": "--at",
    "--time": "--at",
    "--filter": "--where",
    "--regex": "--grep",
    "--interval": "--every",
    "--by": "--every",
    "--per": "--every",
    "--bucket": "--every",
    "-k": "--key",
    "--order": "--sort",
    "--order-by": "--sort",
    "--csv": "--format",
    "--timezone": "--tz",
    "--command-config": "--config",
    "--out": "--output",
    "--topic": "TOPIC",
    "-t": "TOPIC",
    "--bootstrap-server": "HOST:PORT",
    "-b": "HOST:PORT",
    "--brokers": "HOST:PORT",
}
"""A name that other tools use → Tidelog's name. An upper-case name is an argument."""

COMMANDS_ELSEWHERE = {
    **dict.fromkeys(("consume", "read", "kcat", "-C", "-G", "-b", "-t"), "cat"),
    **dict.fromkeys(("list", "topic", "-L", "du", "describe"), "ls"),
    **dict.fromkeys(("offset", "offsets", "lookup", "-Q"), "find"),
    **dict.fromkeys(("check", "fsck", "validate"), "verify"),
    **dict.fromkeys(("query", "duckdb"), "sql"),
    **dict.fromkeys(("web", "console"), "ui"),
    **dict.fromkeys(("start", "server", "broker"), "serve"),
    **dict.fromkeys(("segments", "why"), "retention"),
    "tail": "cat --tail",
    "grep": "cat --grep",
    "count": "cat --count",
    "histogram": "cat --count --every 1m",
    "export": "cat --output",
    "lag": "groups lag",
    "group": "groups",
    "replay": "job replay",
    "mirror": "job mirror",
}
"""A command of another tool, or a mode of kcat → Tidelog's command."""


def no_such_option(error: click.NoSuchOption) -> str:
    """Return the message for an option that a command does not have."""
    message = f"no such option {error.option_name!r}"
    if error.ctx is None:
        return f"{message}."
    if error.ctx.parent is None and error.option_name in COMMANDS_ELSEWHERE:
        return f"{message} (did you mean tidelog {COMMANDS_ELSEWHERE[error.option_name]}?)."
    params = error.ctx.command.params
    known = [name for param in params if isinstance(param, click.Option) for name in (*param.opts, *param.secondary_opts)]
    arguments = " ".join(param.metavar or "" for param in params if isinstance(param, click.Argument))
    ours = ELSEWHERE.get(error.option_name, "")
    if ours in known:
        return f"{message} (did you mean {ours}?)."
    if ours.isupper() and ours in arguments:
        return f"{message}: give it as an argument, {error.ctx.command_path} {arguments}."
    return f"{message}{did_you_mean(error.option_name, known, most=3)}."


def no_such_command(name: str, group: click.Group, ctx: click.Context) -> str:
    """Return the message for a command that a group does not have."""
    known = group.list_commands(ctx)
    ours = COMMANDS_ELSEWHERE.get(name) if ctx.parent is None else None
    meant = f" (did you mean {ours}?)" if ours else did_you_mean(name, known, most=3)
    return f"No such command {name!r}{meant or ('' if ctx.parent is None else '; the commands are ' + ', '.join(known))}."
