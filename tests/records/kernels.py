"""The kernels twice: as they are installed, and interpreted, whatever is installed beside their sources."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from tidelog.records import kernel as installed

FOLDER = Path(installed.__file__).parent
PACKAGE = installed.__name__


@contextmanager
def only_sources() -> Iterator[None]:
    """Within it, the kernels are imported from their sources only; after it, those that were there are there again."""
    parent = sys.modules[PACKAGE.rpartition(".")[0]]
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name == PACKAGE or name.startswith(f"{PACKAGE}.")}
    folders = [str(path) for path in (FOLDER, *FOLDER.iterdir()) if path.is_dir()]
    finders = {folder: sys.path_importer_cache.get(folder) for folder in folders}
    sys.path_importer_cache.update({folder: FileFinder(folder, (SourceFileLoader, [".py"])) for folder in folders})
    try:
        yield
    finally:
        for folder, finder in finders.items():
            del sys.path_importer_cache[folder]
            if finder is not None:
                sys.path_importer_cache[folder] = finder
        for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
            del sys.modules[name]
        sys.modules.update(kept)
        setattr(parent, "kernel", kept[PACKAGE])  # noqa: B010


def load_interpreted() -> ModuleType:
    """Load the kernels as plain Python; each of their names has been asked for."""
    with only_sources():
        interpreted = import_module(PACKAGE)
        for name in interpreted.__all__:
            getattr(interpreted, name)
    assert not interpreted.COMPILED
    return interpreted


INTERPRETED = load_interpreted()
KERNELS = {"interpreted": INTERPRETED} | ({"compiled": installed} if installed.COMPILED else {})
"""Under `interpreted` and, where there is a C compiler, `compiled`."""
