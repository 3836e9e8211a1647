"""The kinds of sources, and the one place that looks at an address to see of which kind it is.

A kind is a row of `KINDS` and a module that holds its class (`source.Source`), which is imported when such a source is opened.
The first row that claims an address has it. The last one, folders, claims what is left.

Each fact needed of an address before it is opened is a column here. Everything else is asked of the source itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from tidelog.client.connections.addresses import is_address
from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import folder_path

if TYPE_CHECKING:
    from tidelog.reader.log_dir import LogDir
    from tidelog.sources.source import Source

Address: TypeAlias = "str | os.PathLike[str] | LogDir"
"""Where topics are: a text, a path, or a folder that is open already."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table."""

    name: str
    """For messages."""
    claims: Callable[[Address], bool]
    opened_by: str
    """`module:class`; it is called with the address, and with `skip_damaged` if it reads files."""
    reads_files: bool = False
    """Segment files are seen: time maps help, damage can be read around, a checkpoint hides nothing."""
    is_local: bool = False
    """It is a path in this machine's file system."""
    is_cluster: bool = False
    """It is brokers: records can be sent there, and they coordinate groups."""
    settled: Callable[[str], str] = lambda address: address
    """Makes of an address one that means the same in another process, with another working folder."""


def _absolute(path: str) -> str:
    return os.fspath(folder_path(path).absolute())


BROKERS = Kind("brokers", is_address, "tidelog.sources.brokers.broker_source:BrokerSource", is_cluster=True)
FOLDER = Kind(
    "a data folder",
    lambda _: True,
    "tidelog.sources.files.folder_source:FolderSource",
    reads_files=True,
    is_local=True,
    settled=_absolute,
)

KINDS: list[Kind] = [BROKERS, FOLDER]
"""Every kind; one that is added stands before the folders."""


def kind_of(address: Address) -> Kind:
    """Return of which kind an address is. Raises InvalidArgumentError for one with a scheme that no kind claims."""
    found = next(kind for kind in KINDS if kind.claims(address))
    if found.is_local and isinstance(address, str | os.PathLike):
        folder_path(address)
    return found


def open_source(address: Address, *, skip_damaged: bool = False) -> Source:
    """Open what an address names. `skip_damaged`: what is read of it is read around damaged batches.

    Raises InvalidArgumentError where no files are seen that could be damaged, DataDirNotFoundError, BrokerUnreachableError.
    """
    kind = kind_of(address)
    module, _, name = kind.opened_by.partition(":")
    make: Callable[..., Source] = getattr(import_module(module), name)
    if kind.reads_files:
        return make(address, skip_damaged=skip_damaged)
    if skip_damaged:
        raise InvalidArgumentError(
            f"skip_damaged is for folders: of {kind.name} segment files are not accessible",
            found=str(address),
        )
    return make(address)


def settled(address: str | os.PathLike[str]) -> str:
    """Return an address that means the same in another process: a folder's is absolute."""
    return kind_of(address).settled(os.fspath(address))
