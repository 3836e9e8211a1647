"""`tidelog serve --check`: everything that is wrong with a configuration and its folder, and what the broker would do.

| line | meaning |
|---|---|
| `error: ...` | the broker would not start; exit code 1 |
| `warning: ...` | it would start, but ignore a property or run without access control |
| `note: ...`, `would ...` | what it would do |

Nothing is written, and no other node is contacted. A bad property is reported, and the others are checked without it.
If a broker is running on the folder, it holds the lock and the ports, so these are not checked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from tidelog.broker.requests.listeners import Listener, joined, parse_address
from tidelog.broker.server.bound_sockets import bind
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.server_properties import ServerProperties, described, sort_properties
from tidelog.cli.printing.layout import one_line
from tidelog.cli.serving.configuration import effectless, one_folder, single_property, with_addresses
from tidelog.cli.serving.process_properties import all_listeners, members, shifted
from tidelog.clock import SystemClock
from tidelog.config import BROKER_NAMES, LogConfig
from tidelog.errors import TidelogError
from tidelog.folder_path import folder_path
from tidelog.formats.dir_lock import is_locked
from tidelog.formats.names import CLEAN_SHUTDOWN_FILE
from tidelog.properties_file import read_properties_file
from tidelog.security.client_config import PLAINTEXT
from tidelog.storage.folder import data_folder, process_folders
from tidelog.storage.folder.meta_properties import read_meta_properties
from tidelog.storage.folder.process_folders import process_folder
from tidelog.storage.manager_config import ManagerConfig

T = TypeVar("T")


def check_serving(
    config_file: str | None,
    pairs: tuple[str, ...],
    *,
    data_dir: str | None,
    listen: str | None,
    advertise: str | None,
    metrics: str | None,
    read_only: bool,
    count: int | None = None,
) -> bool:
    """Print the findings for these options of `tidelog serve`; return whether the broker, or all `count` of them, would start."""
    found = _Findings()
    given = dict(filter(None, (found.tried(single_property, pair) for pair in pairs)))
    file = {} if config_file is None else found.tried(read_properties_file, config_file) or {}
    # As in Kafka, a topic property such as retention.ms has no effect in the file.
    ignored = {name: file[name] for name in file.keys() & LogConfig().to_properties().keys() - given.keys() - BROKER_NAMES.keys()}
    left = _without_errors(found, {**{name: file[name] for name in file if name not in ignored}, **given})
    if left is None:
        found.error("the rest of the configuration is not checked until this error is fixed")
        return found.finish()
    properties = sort_properties(left, topic_names=True)
    without = effectless({name: value for name, value in file.items() if name not in given}, sort_properties({**left, **ignored}))
    if without.unknown:
        found.warning(f"{config_file}: ignoring unknown properties: {described(without.unknown)}")
    if without.guards:
        found.warning(f"{config_file}: {', '.join(without.guards)} have no effect: this broker does not support them")
    if without.unused:
        found.note(f"{config_file}: ignoring properties that Tidelog does not use: {', '.join(without.unused)}")
    unknown = [name for name in properties.unknown if name in given]
    if unknown:
        found.error(f"--property: unknown property {described(unknown, topic_names=True)}")
    config = found.tried(with_addresses, properties.config, listen, advertise) or properties.config
    metrics_at = None if metrics is None else found.tried(parse_address, metrics)
    folder = data_dir or config.log_dir
    if folder is None:
        found.error("there is no data folder: give --data, or a --config with log.dirs")
        return found.finish()
    if config.cluster is not None and read_only:
        found.error("a member of a cluster cannot be read-only")
    is_served = False
    if count is None:
        path = found.tried(partial(one_folder, read_only=read_only), folder, config)
        listeners = list(config.listeners)
        is_served = path is not None and _check_folder(found, path, config, properties, is_read_only=read_only)
    else:
        path = folder_path(folder)
        listeners = found.tried(all_listeners, config.listeners, count) or []
        if read_only:
            found.error("--processes and --read-only cannot be combined: one process serves a read-only folder")
        elif config.cluster is None:
            is_served = _check_divided(found, path, count)
        else:
            for number in range(1, count + 1):
                mine = process_folder(path, number)
                given = members(left, shifted(config.listeners, number), number, config.cluster.node_id, mine)
                wanted = sort_properties(given, topic_names=True)
                is_served |= _check_folder(found, mine, config, wanted, is_read_only=False)
    if is_served:
        found.note("a broker is running on this folder: ports are not checked")
    else:
        extra = () if metrics_at is None else (Listener("metrics", *metrics_at, *metrics_at),)
        for listener in (*listeners, *extra):
            bound = found.tried(bind, replace(config, listeners=(listener,)))
            if bound is not None:
                bound.close()
    for listener in listeners:
        at, advertised = (listener.host, listener.port), (listener.advertised_host, listener.advertised_port)
        text = f"would listen on {joined(at[0] or '*', at[1])} ({listener.protocol})"
        found.line(text if at == advertised else f"{text}, and send clients to {joined(*advertised)}")
        if listener.protocol == PLAINTEXT and not config.authorizer_class_name and listener.host not in _LOOPBACK:
            found.warning(
                f"any client that reaches {joined(at[0] or '*', at[1])} has full access: set up TLS, users or an authorizer"
            )
    if metrics_at is not None:
        found.line(f"would serve metrics and health at http://{joined(metrics_at[0] or '*', metrics_at[1])}/metrics and /healthz")
    return found.finish()


def _check_divided(found: _Findings, folder: Path, count: int) -> bool:
    """Report the state of a folder that several brokers share; return whether they are running."""
    if not folder.exists():
        return _check_new(found, folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        found.error(f"this user may not write to the data folder ({folder})")
        return False
    numbers = range(count + 1)
    is_served = any(found.tried(is_locked, process_folder(folder, number)) for number in numbers)
    places = found.tried(process_folders.check, folder, SystemClock())
    if places is not None:
        text = f"would serve {len(places)} partitions of {len({one.topic for one in places})} topics with {count} processes"
        moving = sum(number not in numbers[1:] for number in places.values())
        if moving:
            text += f", and move {moving} partitions to other brokers first"
        found.line(f"{text} ({folder})")
    return is_served


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class _Findings:
    """Prints findings, and counts the errors."""

    def __init__(self) -> None:
        self._errors = 0

    def error(self, text: str) -> None:
        self._errors += 1
        self.line(f"error: {text}")

    def warning(self, text: str) -> None:
        self.line(f"warning: {text}")

    def note(self, text: str) -> None:
        self.line(f"note: {text}")

    def line(self, text: str) -> None:
        click.echo(one_line(text))

    def tried(self, work: Callable[..., T], *arguments: object) -> T | None:
        """Return the result of `work`. If it fails, report the error and return None."""
        try:
            return work(*arguments)
        except TidelogError as error:
            self.error(str(error))
        except click.UsageError as error:
            self.error(error.format_message())
        return None

    def finish(self) -> bool:
        if self._errors:
            self.line(f"the broker would not start: {self._errors} error{'s' if self._errors > 1 else ''}")
        else:
            self.line("the broker would start")
        return not self._errors


def _without_errors(found: _Findings, properties: Mapping[str, str]) -> dict[str, str] | None:
    """Report every error in the properties, and return the properties that caused none.

    Return None if no single property causes an error: for example, if a property is missing.
    """
    left, removed = dict(properties), set[str]()
    while (error := _error_of(left)) is not None:
        if not any(name in error for name in removed):  # Otherwise the error may be caused only by our removal of a property.
            found.error(error)
        cause = _cause(left, error)
        if cause is None:
            return None
        removed.add(cause)
        del left[cause]
    return left


def _error_of(properties: Mapping[str, str]) -> str | None:
    try:
        sort_properties(properties, topic_names=True)
    except TidelogError as error:
        return str(error)
    return None


def _cause(properties: Mapping[str, str], error: str) -> str | None:
    """Return the property without which the error disappears or changes. Try the properties that the error names first."""
    for name in sorted(properties, key=lambda one: (one not in error, -len(one))):
        if _error_of({one: value for one, value in properties.items() if one != name}) != error:
            return name
    return None


def _check_new(found: _Findings, folder: Path) -> bool:
    """Report whether the folder can be created. Return False, because no broker runs on a missing folder."""
    parent = next((one for one in folder.absolute().parents if one.exists()), Path("/"))
    if not os.access(parent, os.W_OK | os.X_OK):
        found.error(f"the data folder does not exist, and this user may not create it ({folder})")
    else:
        found.line(f"would create the data folder ({folder})")
    return False


def _check_folder(
    found: _Findings, folder: Path, config: BrokerConfig, properties: ServerProperties, *, is_read_only: bool
) -> bool:
    """Report the state of the data folder; return whether a broker is running on it."""
    if not folder.exists():
        if is_read_only or config.cluster is not None:
            found.error(f"the data folder does not exist ({folder})")
            return False
        return _check_new(found, folder)
    if not os.access(folder, os.R_OK | os.X_OK | (0 if is_read_only else os.W_OK)):
        found.error(f"this user may not {'read' if is_read_only else 'write to'} the data folder ({folder})")
        return False
    try:
        data_folder.check_is_data_folder(folder)
    except TidelogError as error:
        is_refused = config.cluster is not None and config.cluster.zookeeper is not None
        (found.error if is_refused else found.warning)(str(error))
    owner = found.tried(read_meta_properties, folder)
    if owner is not None:
        found.tried(data_folder.check_owner, folder, owner, ManagerConfig.from_properties(properties.manager))
    elif config.cluster is not None:
        found.error(f"the folder is not formatted for a broker of a cluster: run `tidelog format` ({folder})")
    contents = found.tried(data_folder.list_contents, folder)
    partitions = [] if contents is None else list(contents.partitions)
    is_served = not is_read_only and bool(found.tried(is_locked, folder))
    text = f"would serve {len(partitions)} partitions of {len({one.topic for one in partitions})} topics"
    if partitions and not is_served and not (folder / CLEAN_SHUTDOWN_FILE).exists():
        text += " and recover them first: the last shutdown was not clean"
    found.line(f"{text} ({folder}{', read-only' if is_read_only else ''})")
    if config.cluster is not None:
        found.note("the broker would join a cluster; --check does not contact the controllers")
    return is_served
