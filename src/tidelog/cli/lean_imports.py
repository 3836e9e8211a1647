"""Imports pyarrow without numpy and pandas. pyarrow imports both if they are installed, although only `job` converts to them.

Without numpy, importing pyarrow takes a third of the time, and 20 MB less memory. pyarrow then stays without numpy as long as the
process runs. So numpy is hidden only if the process is the command itself, not if a program calls a command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder

is_own_process = False
"""Whether this process is the command `tidelog`: set by `tidelog.cli.main`."""


class _Hidden(MetaPathFinder):
    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name in self.names:
            raise ModuleNotFoundError(name=name)


@contextmanager
def lean_imports() -> Iterator[None]:
    """Hide pandas from imports in the block. If the process is the command itself, hide pandas and numpy from then on, because
    pyarrow imports parts of itself later.
    """
    finder = _Hidden("pandas", "numpy") if is_own_process else _Hidden("pandas")
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if not is_own_process:
            sys.meta_path.remove(finder)
