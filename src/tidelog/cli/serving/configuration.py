"""The configuration of `tidelog serve`: a properties file, overridden by `--property`, overridden by the address options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from tidelog.broker.requests.listeners import Listener, joined, parse_address, parse_listeners
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.server_properties import ServerProperties, described, sort_properties
from tidelog.broker.settings.unused_properties import GUARDS
from tidelog.cli.option_values import usage_errors
from tidelog.folder_list import are_several
from tidelog.folder_path import folder_path
from tidelog.processors import processors
from tidelog.properties_file import read_properties_file
from tidelog.security.client_config import PLAINTEXT

logger = logging.getLogger("tidelog.serve")

MOST_PROCESSES = 64


def single_properties(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the properties of `--property`. Raise UsageError for an unknown one, or a property without a value."""
    found = dict(map(single_property, pairs))
    unknown = sort_properties({name: found[name] for name in found if name != "process.roles"}, topic_names=True).unknown
    if unknown:
        raise click.UsageError(f"--property: unknown property {described(unknown, topic_names=True)}.")
    return found


def single_property(pair: str) -> tuple[str, str]:
    """Return the name and the value of one `--property`. Raise UsageError if it is not `NAME=VALUE`."""
    name, separator, value = pair.partition("=")
    if not separator:
        raise click.UsageError(f"--property {pair!r} is not NAME=VALUE.")
    return name.strip(), value.strip()


def file_properties(path: str | None, given: Mapping[str, str]) -> Mapping[str, str]:
    """Read the configuration file. Unknown properties and properties without effect are dropped, each kind with one warning.

    `given` properties override the file's. Some given properties, such as the roles, decide which other properties apply.
    """
    if path is None:
        return {}
    found = read_properties_file(path)
    without = effectless(found, sort_properties({**found, **given}))
    if without.unknown:
        logger.warning("%s: ignoring unknown properties: %s", path, described(without.unknown))
    if without.guards:
        logger.warning("%s: %s have no effect: this broker does not support them", path, ", ".join(without.guards))
    if without.unused:
        logger.info("%s: ignoring properties that Tidelog does not use: %s", path, ", ".join(without.unused))
    return {name: value for name, value in found.items() if not any(name in names for names in without)}


class Effectless(NamedTuple):
    """Properties of a file that have no effect: unknown ones, ones that would restrict clients in Kafka, and others."""

    unknown: list[str]
    guards: list[str]
    unused: list[str]


def effectless(found: Mapping[str, str], wanted: ServerProperties) -> Effectless:
    """Return those properties of a file, `found`, that the parsed properties, `wanted`, report as unknown or unused."""
    unknown, unused = ([name for name in names if name in found] for names in (wanted.unknown, wanted.unused))
    guards = [name for name in GUARDS if name in unused and found[name] not in ("", "none")]
    return Effectless(unknown, guards, [name for name in unused if name not in guards])


def with_addresses(config: BrokerConfig, listen: str | None, advertise: str | None) -> BrokerConfig:
    """Return the configuration with the addresses of `--listen` and `--advertise`. Raise UsageError if one is invalid."""
    if listen is None and advertise is None:
        return config
    advertised = address_of("--advertise", advertise)
    if listen is None:
        assert advertised is not None
        first = config.listeners[0]._replace(advertised_host=advertised[0], advertised_port=advertised[1])
        return replace(config, listeners=(first, *config.listeners[1:]))
    # Use the same listener name everywhere, because other brokers of a cluster look up the listener by its name.
    name = PLAINTEXT if config.cluster is None else config.cluster.inter_broker_listener_name
    with usage_errors("--listen"):
        host, port = parse_address(listen)
        if advertised is not None:
            return replace(config, listeners=(Listener(name, host, port, *advertised),))
        (one,) = parse_listeners({"listeners": f"{PLAINTEXT}://{joined(host, port)}"})
    return replace(config, listeners=(one._replace(name=name),))


def address_of(option: str, text: str | None) -> tuple[str, int] | None:
    """Return the host and the port that an option gives, None if it is not given. Raises UsageError."""
    with usage_errors(option):
        return None if text is None else parse_address(text)


def process_count(processes: str) -> int:
    """Return the number in `--processes`; for `auto`, one for each processor. Raises UsageError."""
    if processes == "auto":
        return min(processors(), MOST_PROCESSES)
    if not (processes.isascii() and processes.isdecimal() and 1 <= int(processes) <= MOST_PROCESSES):
        raise click.UsageError(f"--processes must be auto or a number from 1 to {MOST_PROCESSES}, not {processes!r}.")
    return int(processes)


def one_folder(folder: str | Path, config: BrokerConfig, *, read_only: bool) -> Path:
    """Return the data folder of a single broker. Raises UsageError if several brokers serve the folder."""
    from tidelog.storage.folder.process_folders import divided_folder  # Not to list the commands: it imports the storage engine.

    if are_several(folder):
        if Path(folder).is_dir():
            raise click.UsageError(f"{folder} is divided between several brokers: serve it with --processes.")
        raise click.UsageError(f"{folder} names several data folders, but a broker has only one.")
    whole = None if config.cluster is not None or read_only else divided_folder(Path(folder))
    if whole is not None:
        raise click.UsageError(f"{folder} is one broker's part of {whole}: serve {whole} with --processes.")
    return folder_path(folder)
