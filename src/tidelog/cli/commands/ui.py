"""`tidelog ui [DIR|HOST:PORT ...]`: serves a page that shows topics by time in a browser."""

from __future__ import annotations

import webbrowser

import click

from tidelog.cli.client_options import client_options, reached
from tidelog.cli.decode_options import decode_options, decode_texts, parsed_decodings
from tidelog.cli.lean_imports import lean_imports
from tidelog.cli.printing import notices
from tidelog.cli.printing.output import print_lines
from tidelog.cli.time_options import time_zone_option, zone_in_use
from tidelog.clock import SystemClock
from tidelog.extras import imported_from


def _all_reached(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return [address for value in values or (".",) if (address := reached(ctx, param, value)) is not None]


@click.command()
@click.argument("sources", metavar="[DIR|HOST:PORT]...", nargs=-1, callback=_all_reached)
@client_options
@decode_options
@time_zone_option
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="The port. [default: any free port]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Allow a --host that other machines can reach: anyone with the address sees all records.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.pass_context
def command(ctx: click.Context, sources: list[str], port: int, host: str, allow_remote: bool, opens: bool) -> None:
    """Show topics by time on a page: segments, exact ranges, look-ups, lag, retention. Read-only.

    The command prints the page's address, which contains a token: only people with the address can see the page. Without a
    source, the page shows the current folder. Ctrl-C ends it.
    """
    if not host.strip():
        raise click.UsageError("--host is empty: expected an address of this machine, such as 127.0.0.1.")
    with imported_from("ui", "starlette or uvicorn"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    with lean_imports():
        import pyarrow  # noqa: F401

        from tidelog.web.context import Context
        from tidelog.web.server import PageServer, is_loopback

    if not is_loopback(host) and not allow_remote:
        raise click.UsageError(
            f"other machines can reach --host {host}, and nothing is encrypted: to allow this, add --allow-remote."
        )
    decode = decode_texts()
    context = Context.of(sources, clock=ctx.find_root().obj or SystemClock(), zone=zone_in_use(), decode=decode)
    # Report an unknown format, an unreadable schema and an unreadable source at once, not in the browser.
    parsed_decodings(decode)
    for pool in context.sources.pools:
        with pool.borrowed():
            pass
    server = PageServer(context, host, port)

    def ready() -> None:
        print_lines([server.url])
        if not server.is_loopback:
            notices.note("the page is not encrypted, and anyone with its address can read everything")
        if opens:
            webbrowser.open(server.url)

    server.serve(ready)
