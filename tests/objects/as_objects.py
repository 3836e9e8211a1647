"""Local folders read through the code for object storage: every path of a folder is an object's, every read a range."""

from __future__ import annotations

import os

import pytest
from pyarrow import fs

from tests.objects.arrow_store import ArrowStore
from tidelog.folder_path import folder_path
from tidelog.formats.paths.file_path import FilePath
from tidelog.objects import opening
from tidelog.objects.address import Place
from tidelog.objects.object_path import ObjectPath, ObjectSource


class LocalObjects(ObjectSource):
    """The file system of this machine as a bucket. Its paths print as local ones."""

    def __init__(self, root: str) -> None:
        super().__init__(Place("file", "file", "", root), {"cache_bytes": "0"}, ArrowStore(fs.LocalFileSystem(), ""))
        self.root = root

    def __reduce__(self) -> tuple[type[LocalObjects], tuple[str]]:
        return LocalObjects, (self.root or "",)


def object_folder(address: str | os.PathLike[str]) -> FilePath:
    """Return a local folder as objects."""
    key = str(folder_path(address).absolute()).strip("/")
    return ObjectPath(LocalObjects(key), key)


@pytest.fixture
def as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open every local folder as objects."""
    monkeypatch.setattr(opening, "local_folder", object_folder)
