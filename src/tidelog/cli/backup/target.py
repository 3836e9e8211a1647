"""The argument that names a backup, with the options of its bucket."""

from __future__ import annotations

import click

from tidelog.backup.backup import Backup, open_backup
from tidelog.cli.client_options import Decorated, bucket_options, reached


def backup_argument(function: Decorated) -> Decorated:
    """Add BACKUP, the address of a backup."""
    return click.argument("backup", metavar="BACKUP", callback=_opened)(bucket_options(function))


def _opened(ctx: click.Context, param: click.Parameter, value: str) -> Backup:
    return open_backup(reached(ctx, param, value) or value)
