"""The kinds of sources, and the only place that determines the kind of an address.

A kind is a row of `KINDS` and a module with its class (`source.Source`), which is imported when such a source is opened. The
first row that accepts an address is used. The last row, folders, accepts all addresses.

The table's columns are the facts that are needed before a source is opened. The source itself knows all other facts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, overload

from tidelog.backup import opening as points
from tidelog.backup.opening import absolute_address, is_point
from tidelog.client.connections.addresses import is_address, with_config
from tidelog.errors import InvalidArgumentError
from tidelog.folder_list import are_several
from tidelog.folder_path import folder_path
from tidelog.objects.address import are_several_objects, is_in_storage, is_object_address, parse, with_options
from tidelog.objects.tier import Tier, TieredAddress, absolute_tiered, is_tiered, parse_tiered

if TYPE_CHECKING:
    from tidelog.reader.log_dir import LogDir
    from tidelog.sources.source import Source

Address: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir"
"""Where topics are read from: an address as text, a path, several folders, or an open folder."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of source, which is a row of `KINDS`."""

    name: str
    """The kind's name in messages."""
    claims: Callable[[Address], bool]
    opened_by: str
    """`module:class`, called with the address, and with `skip_damaged` if it reads files."""
    reads_files: bool = False
    """Whether segment files are accessible, so that time maps help, damage can be skipped, and records after the checkpoint can
    be read.
    """
    is_local: bool = False
    """Whether the address is a path in this machine's file system."""
    is_cluster: bool = False
    """Whether the source is a cluster's brokers, which accept records and coordinate groups."""
    settled: Callable[[str], str] = lambda address: address
    """Makes an address valid in a process with a different working directory."""


def _absolute(path: str) -> str:
    return os.fspath(folder_path(path).absolute())


BROKERS = Kind("brokers", is_address, "tidelog.sources.brokers.broker_source:BrokerSource", is_cluster=True)
_of_files = functools.partial(Kind, opened_by="tidelog.sources.files.folder_source:FolderSource", reads_files=True)

FOLDER = _of_files("a data folder", lambda _: True, is_local=True, settled=_absolute)
OBJECTS = _of_files("object storage", is_object_address)
FOLDERS = _of_files(
    "data folders", lambda address: are_several_objects(address) or are_several(address), settled=absolute_address
)
TIERED = _of_files(
    "a data folder with remote storage", is_tiered, settled=lambda address: absolute_tiered(address, absolute_address)
)
POINT = _of_files("a point of a backup", is_point, settled=lambda address: points.settled(address, absolute_address))

KINDS: list[Kind] = [BROKERS, TIERED, POINT, OBJECTS, FOLDERS, FOLDER]
"""Every kind of source. Add a new kind before `FOLDER`, which accepts any address."""


def kind_of(address: Address) -> Kind:
    """Return the kind of an address. Raises InvalidArgumentError for a scheme that no kind claims."""
    found = next(kind for kind in KINDS if kind.claims(address))
    if found is OBJECTS:
        parse(str(address))
    if found.is_local and isinstance(address, str | os.PathLike):
        folder_path(address)
    return found


def open_source(address: Address, *, skip_damaged: bool = False, timeout_ms: int | None = None) -> Source:
    """Open the source at an address. With `skip_damaged`, reads skip damaged batches. `timeout_ms` is the time limit of each call
    to brokers.

    Raises InvalidArgumentError if `skip_damaged` is set and the source gives no access to segment files, DataDirNotFoundError,
    BrokerUnreachableError.
    """
    kind = kind_of(address)
    module, _, name = kind.opened_by.partition(":")
    make: Callable[..., Source] = getattr(import_module(module), name)
    if kind.reads_files:
        return make(address, skip_damaged=skip_damaged)
    if skip_damaged:
        raise InvalidArgumentError(
            f"skip_damaged reads segment files, so it needs a folder, not {kind.name}",
            found=str(address),
        )
    return make(address, timeout_ms) if kind.is_cluster and timeout_ms is not None else make(address)


def takes_options(address: Address) -> bool:
    """Return whether an address, or a part of it (one of several folders, or a tier), is in object storage."""
    return in_storage(address) is not None


def in_storage(address: Address) -> str | None:
    """Return the part of an address that is in object storage, or None if no part is."""
    if is_tiered(address):
        return parse_tiered(address).in_storage()
    if is_point(address):
        return points.in_storage(address)
    return str(address) if is_in_storage(address) else None


def configured(address: Address, config: Mapping[str, object] | None) -> Address:
    """Return an address that carries `config`: Kafka's client properties, or options of object storage. Without `config`, return
    the address itself. Raises InvalidArgumentError for a local folder.
    """
    if not config:
        return address
    if not isinstance(address, str | os.PathLike) and isinstance(address, Sequence):
        return [with_options(one, config) if takes_options(one) else one for one in address]
    kind = kind_of(address)
    if takes_options(address):
        assert isinstance(address, str | os.PathLike)
        return with_options(address, config, in_storage(address))
    if not isinstance(address, str) or not kind.is_cluster:
        raise InvalidArgumentError("config applies only to brokers and object storage", found=f"{kind.name}: {address}")
    return with_config(address, config)


@overload
def tiered(address: str, tier: str | None, key_files: Sequence[str] = ()) -> str: ...


@overload
def tiered(address: Address, tier: str | None, key_files: Sequence[str] = ()) -> Address: ...


def tiered(address: Address, tier: str | None, key_files: Sequence[str] = ()) -> Address:
    """Return the address of one or more data folders combined with the remote storage `tier`. Without a tier, return the address
    itself.

    Raises InvalidArgumentError if the address is a cluster's: brokers read remote storage themselves.
    """
    if tier is None:
        if key_files:
            raise InvalidArgumentError("tier keys are given, but no tier", found=", ".join(key_files), expected="tier=ADDRESS")
        return address
    if not isinstance(address, str | os.PathLike | Sequence) or kind_of(address) not in (FOLDER, FOLDERS, OBJECTS):
        raise InvalidArgumentError("only a data folder can have a tier", found=f"{kind_of(address).name}: {address}")
    if kind_of(tier) not in (FOLDER, OBJECTS):
        raise InvalidArgumentError("a tier must be a folder or an object storage address", found=f"{kind_of(tier).name}: {tier}")
    if isinstance(address, str | os.PathLike):
        folders = os.fspath(address)
    else:
        from tidelog.objects.opening import address_of, folders_at

        folders = address_of(*folders_at(address))
    return TieredAddress(folders, Tier(tier, tuple(key_files))).with_options()


def settled(address: str | os.PathLike[str]) -> str:
    """Return an address that is valid in another process: relative paths of folders become absolute."""
    return kind_of(address).settled(os.fspath(address))
