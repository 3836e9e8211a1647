"""The options --report and --sign-key, and `tidelog backup check-report FILE --public-key PEM`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidelog.cli.client_options import Decorated
from tidelog.cli.local_path import LocalPath
from tidelog.cli.printing.output import print_lines

if TYPE_CHECKING:
    from tidelog.backup.signed_report import Report


def report_options(function: Decorated) -> Decorated:
    """Add the options --report FILE and --sign-key PEM. `report_of` makes the report."""
    key = click.option("--sign-key", metavar="PEM", type=LocalPath(), help="Sign the report with this Ed25519 key.")
    return click.option("--report", "report_file", metavar="FILE", type=LocalPath(), help="Write a report in JSON.")(
        key(function)
    )


def report_of(report_file: str | None, sign_key: str | None) -> Report | None:
    """Return the report for --report, None if the option is not given. Call this function before the work begins.

    Raises click.UsageError, and what `Report` raises.
    """
    if report_file is None:
        if sign_key is not None:
            raise click.UsageError("--sign-key needs --report.")
        return None
    from tidelog.backup.signed_report import Report

    return Report(Path(report_file), None if sign_key is None else Path(sign_key))


@click.command("check-report")
@click.argument("file", metavar="FILE", type=LocalPath())
@click.option(
    "--public-key", metavar="PEM", type=LocalPath(), required=True, help="The public part of the key that signed the report."
)
def command(file: str, public_key: str) -> None:
    """Check the signature of a report of `backup verify` or `restore`.

    The signature is in FILE.sig. Exit code 1 if the report was changed, or signed with a different key.
    """
    from tidelog.backup.signed_report import check_report

    content = check_report(Path(file), Path(public_key))
    what = f"{content['what']} of {content['at']}, backup {content['backup_id']}"
    print_lines([f"signed with this key: {what}, {len(content['differences'])} differences"])
