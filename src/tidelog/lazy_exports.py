"""Names that a package exports from its modules, each imported when it is first used: the package alone costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package`. `homes` are the names to export by the modules that define them.

    What it returns raises AttributeError for any other name.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def exported(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return exported
