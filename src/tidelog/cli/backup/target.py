"""The argument that names a backup, with the options of its bucket."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from tidelog.backup.backup import open_backup
from tidelog.cli.client_options import bucket_options, reached


def backup_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add BACKUP, the address of a backup. It is opened once all arguments are parsed, so that errors in them come first."""

    @functools.wraps(function)
    def opened(*args: Any, backup: str, **given: Any) -> Any:
        return function(*args, backup=open_backup(backup), **given)

    return click.argument("backup", metavar="BACKUP", callback=reached)(bucket_options(opened))
