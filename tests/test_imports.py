"""No circle of imports, also inside rooms, and none hidden in a function. Between rooms import-linter holds the layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports when it runs, wherever in it; what only type checkers read is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imported(node)


def test_no_circle_of_imports() -> None:
    graph = {
        name: {other for other in imported(ast.parse(path.read_text(encoding="utf-8"))) if other in MODULES and other != name}
        for name, path in MODULES.items()
    }
    assert sum(map(len, graph.values())) > 1_000, "the imports were found"
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
