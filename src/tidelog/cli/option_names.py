"""Suggests options for one that a command does not have: similar names, and ours for names in other tools."""

from __future__ import annotations

import click

from tidelog.near_names import did_you_mean

ELSEWHERE = {
    "--limit": "-n",
    "--max-messages": "-n",
    "--head": "-n",
    "-c": "-n",
    "--last": "--tail",
    "--since": "--from",
    "--start": "--from",
    "--after": "--from",
    "--from-beginning": "--offset",
    "--until": "--to",
    "--end": "--to",
    "--before": "--to",
    "--timestamp": "--at",
    "--time": "--at",
    "--filter": "--where",
    "--regex": "--grep",
    "--interval": "--every",
    "--timezone": "--tz",
    "--command-config": "--config",
    "--out": "--output",
    "--topic": "TOPIC",
    "-t": "TOPIC",
    "--bootstrap-server": "HOST:PORT",
    "-b": "HOST:PORT",
    "--brokers": "HOST:PORT",
}
"""A name that other tools use → ours. An upper-case name is an argument."""


def no_such_option(error: click.NoSuchOption) -> str:
    """Return the message for an option that a command does not have."""
    message = f"no such option {error.option_name!r}"
    if error.ctx is None:
        return f"{message}."
    params = error.ctx.command.params
    known = [name for param in params if isinstance(param, click.Option) for name in (*param.opts, *param.secondary_opts)]
    arguments = " ".join(param.metavar or "" for param in params if isinstance(param, click.Argument))
    ours = ELSEWHERE.get(error.option_name, "")
    if ours in known:
        return f"{message} (did you mean {ours}?)."
    if ours.isupper() and ours in arguments:
        return f"{message}: it is an argument, tidelog {error.ctx.info_name} {arguments}."
    return f"{message}{did_you_mean(error.option_name, known, most=3)}."
