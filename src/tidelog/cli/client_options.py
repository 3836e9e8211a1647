"""Options for secured brokers and for object storage, `--config FILE` and `-X NAME=VALUE`.

FILE is a `client.properties` as for Kafka's tools (`--command-config`). `-X` takes precedence over the file. Other users can see
a command line (`ps`), so passwords belong in the file.

The value of the argument HOST:PORT carries this configuration (`SecuredBrokers`), so commands need no code for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tidelog.cli.local_path import LocalPath
from tidelog.client.connections.addresses import parse_addresses, secured
from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import folder_path
from tidelog.sources.opening import in_storage, kind_of, takes_options, tiered

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FILE = "tidelog.client.file"
_GIVEN = "tidelog.client.given"
_BROKER_FILE = "tidelog.broker.file"
_TIER = "tidelog.objects.tier"
_TIER_KEYS = "tidelog.objects.tier.keys"
_POINT = "tidelog.backup.point"


def _kept(name: str, key: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Return an option whose value is kept in the context as `key`. It is parsed before the addresses."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta[key] = value

    return click.option(name, is_eager=True, expose_value=False, callback=keep, **settings)


TIER_OPTIONS = (
    _kept(
        "--tier-key",
        _TIER_KEYS,
        metavar="[ID=]FILE",
        multiple=True,
        help="The RSA private key (PEM) of an encrypted tier; may be repeated.",
    ),
    _kept(
        "--tier",
        _TIER,
        metavar="ADDRESS",
        help="The remote storage of DIR's tiered topics: a folder, or an address of object storage.",
    ),
    _kept(
        "--point",
        _POINT,
        metavar="N|TIME",
        help="The point of a backup: its number, or a time, for the last point at or before that time. [default: the newest]",
    ),
)
"""`--tier`, `--tier-key` and `--point`. `reached` reads them."""


def given_option(function: Decorated) -> Decorated:
    """Add the option -X NAME=VALUE. `reached` reads it."""
    return click.option(
        "-X",
        metavar="NAME=VALUE",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_given,
        help="A property, as in --config; may be repeated. Not for passwords: other users can see the command line.",
    )(function)


def _file_option(text: str) -> Callable[[Decorated], Decorated]:
    return _kept("--config", _FILE, metavar="FILE", type=LocalPath(), help=text)


def bucket_options(function: Decorated) -> Decorated:
    """Add the options --config FILE and -X NAME=VALUE of object storage. `reached` reads them."""
    return _file_option("A properties file with a bucket's options.")(given_option(function))


def keep_broker_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Keep a broker's configuration file, which may have a bucket's options, too. `reached` reads it."""
    ctx.meta[_BROKER_FILE] = value
    return value


def client_options(function: Decorated) -> Decorated:
    """Add the client's options --config FILE and -X NAME=VALUE. `reached` reads them."""
    of_client = "A client.properties file for connecting to the brokers (security.protocol, ssl.*, sasl.*), or a bucket's options"
    for option in (*TIER_OPTIONS, given_option, _file_option(of_client)):
        function = option(function)
    # Click's list of parameters, the last one first. These are the last ones in the help: what a command does comes before them.
    params: list[click.Parameter] = function.__click_params__  # type: ignore[attr-defined]
    params[:] = params[-5:] + params[:-5]
    return function


def reached(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the address of brokers with the configuration of this run. Any other source is returned unchanged. Raises
    InvalidArgumentError, StorageError.
    """
    file, given = ctx.meta.get(_FILE), ctx.meta.get(_GIVEN, {})
    if value is None:
        return None
    if ctx.meta.get(_BROKER_FILE) is not None and takes_options(value):
        given = _of_bucket(value, ctx.meta[_BROKER_FILE]) | given
    if ctx.meta.get(_TIER) or ctx.meta.get(_TIER_KEYS):
        value = tiered(value, ctx.meta.get(_TIER), ctx.meta.get(_TIER_KEYS, ()))
    kind = kind_of(value)
    if file is None and not given:
        if kind.is_cluster:
            value = _checked(ctx, param, value)
        return _at_point(ctx, str(folder_path(value)) if kind.is_local else value)
    if takes_options(value):
        return _at_point(ctx, _with_options(value, file, given))
    if not kind.is_cluster:
        of_target = any(one.name == "target_config" for one in ctx.command.params)
        hint = "; the options of TARGET's bucket are read from --target-config FILE" if of_target else ""
        raise click.UsageError(f"--config and -X are for brokers and object storage, not for {kind.name}: {value!r}{hint}.", ctx)
    return _checked(ctx, param, _secured(value, file, given))


def _checked(ctx: click.Context, param: click.Parameter, brokers: str) -> str:
    """Return the addresses of brokers. Raises BadParameter if one is invalid."""
    try:
        parse_addresses(brokers)
    except InvalidArgumentError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    return brokers


def _at_point(ctx: click.Context, value: str) -> str:
    """Return the address of a backup with the point that `--point` names; without it, the address itself."""
    point = ctx.meta.get(_POINT)
    if point is None:
        return value
    if kind_of(value).is_cluster:
        raise click.UsageError("--point is for a backup, not for brokers.", ctx)
    from tidelog.backup.backup import open_backup
    from tidelog.backup.opening import point_address
    from tidelog.clock import SystemClock

    return point_address(value, open_backup(value).point_named(point, SystemClock()).sequence)


def config_option(of: str) -> Callable[[Decorated], Decorated]:
    """Add --OF-config FILE, the client configuration for the brokers of the option --OF. `reached_by` reads it."""
    text = f"A client.properties file for connecting to the brokers of --{of}."
    return _kept(f"--{of}-config", f"{_FILE}.{of}", metavar="FILE", type=LocalPath(), help=text)


def reached_by(of: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return a function that adds the configuration of --OF-config to the brokers of --OF."""

    def reached_so(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        file = ctx.meta.get(f"{_FILE}.{of}")
        if value is None or not kind_of(value).is_cluster:
            return value
        return _checked(ctx, param, value if file is None else _secured(value, file, {}))

    return reached_so


def _with_options(value: str, file: str | None, given: dict[str, str]) -> str:
    from tidelog.objects.address import with_options
    from tidelog.properties_file import read_properties_file

    return with_options(value, {**({} if file is None else read_properties_file(file)), **given}, in_storage(value))


def _of_bucket(value: str, file: Path) -> dict[str, str]:
    """Return the options of object storage in a broker's configuration file."""
    from tidelog.objects.address import service_of
    from tidelog.objects.settings import option_name
    from tidelog.properties_file import read_properties_file

    service = service_of(value)
    return {name: text for name, text in read_properties_file(file).items() if option_name(name, service) is not None}


def _secured(value: str, file: str | None, given: dict[str, str]) -> str:
    # Imported here, so that commands without a secured broker do not load it.
    from tidelog.properties_file import read_properties_file
    from tidelog.security.client_config import check_names, client_config

    check_names(given)
    return secured(value, client_config({**({} if file is None else read_properties_file(file)), **given}))


def _keep_given(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    pairs = [value.partition("=") for value in values]
    for name, equals, _ in pairs:
        if not name.strip() or not equals:
            raise click.BadParameter("-X expects NAME=VALUE.", ctx, param)  # Do not show the value, which may be a password.
    ctx.meta[_GIVEN] = {name.strip(): value for name, _, value in pairs}
