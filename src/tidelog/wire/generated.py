"""Compiles generated source for one message and version. Tracebacks show its lines."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any


def compiled(source: str, function: str, what: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return the function named `function` that `source` defines, with `names` as its globals. `what` is its file name in
    tracebacks.
    """
    file_name = f"<{what}>"
    linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
    exec(compile(source, file_name, "exec"), names)  # noqa: S102
    result: Callable[..., Any] = names[function]
    return result
