"""Lazy exports: a package imports each exported name from its module on first use, so importing the package takes no time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package`. `homes` maps each module to the names that the package exports from it.

    The returned function raises AttributeError for any other name.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def exported(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return exported
