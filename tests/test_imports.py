"""No circle of imports, also inside rooms, and none hidden in a function. Between rooms import-linter holds the layers.

ARCHITECTURE.md has a picture of the rooms: it is compared with the imports.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may be, or have, a statement in it, one level down: most of a tree are expressions."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(node, field, None)
        if isinstance(inner, list):  # A lambda's body is an expression.
            yield from inner


def all_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in it: a third of the work of `ast.walk`."""
    for inner in statements(node):
        yield inner
        yield from all_statements(inner)


def imported(tree: ast.AST, *, with_types: bool = False) -> Iterator[str]:
    """Yield the modules that a file imports when it runs, wherever in it; with what only type checkers read, or without."""
    for node in statements(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not with_types:
            yield from (name for other in node.orelse for name in imported(ast.Module([other], []), with_types=with_types))
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imported(node, with_types=with_types)


class Facts(NamedTuple):
    """What the tests below ask about a module. The trees are not kept: their million objects would slow the collector."""

    imports: set[str]
    imports_with_types: set[str]
    offers: frozenset[str] | None
    """None if it makes names when they are asked for."""


@cache
def facts() -> dict[str, Facts]:
    found = {}
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        plain, typed = ({*imported(tree, with_types=with_types)} & MODULES.keys() - {name} for with_types in (False, True))
        found[name] = Facts(plain, typed, top_level_names(name, tree))
    return found


def graph_of_imports(*, with_types: bool) -> dict[str, set[str]]:
    return {name: one.imports_with_types if with_types else one.imports for name, one in facts().items()}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets of modules in which each leads to each other."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            for name in graph[left.pop()] - found:
                found.add(name)
                left.append(name)
        return found

    from_each = {name: reached(name) for name in graph}
    found = {
        frozenset(other for other in names if name in from_each[other]) for name, names in from_each.items() if name in names
    }
    return [set(circle) for circle in found]


def test_no_circle_of_imports() -> None:
    graph = graph_of_imports(with_types=False)
    assert sum(map(len, graph.values())) > 1_000, "the imports were found"
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []


def test_no_circle_of_types() -> None:
    """Nor of what only type checkers import."""
    assert [sorted(circle) for circle in circles(graph_of_imports(with_types=True))] == []


# --- The picture in ARCHITECTURE.md

PICTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("```mermaid\n")[2].partition("\n```")[0]
SHARED = "shared"
"""The box of the modules that are no rooms."""


def room_of(module: str) -> str:
    """Return the room of a module as the picture names it."""
    package, _, inner = module.partition(".")
    room = inner.partition(".")[0]
    if package != "tidelog":
        return package
    if room == "__main__":
        return "cli"
    return SHARED if (SOURCE / "tidelog" / f"{room}.py").exists() else room


def arrows_drawn() -> dict[str, set[str]]:
    drawn: dict[str, set[str]] = {}
    for start, end in re.findall(r"^ *(\w+)(?:\[[^\]]*\])? --> (\w+)", PICTURE, re.MULTILINE):
        assert end not in drawn.setdefault(start, set()), f"{start} --> {end} is drawn twice"
        drawn[start].add(end)
    return drawn


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        new = graph.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def imports_between_rooms() -> dict[str, set[str]]:
    # What `tidelog` itself exports comes from everywhere, when it is asked for.
    found: dict[str, set[str]] = {}
    for module, others in graph_of_imports(with_types=False).items():
        if module != "tidelog":
            found.setdefault(room_of(module), set()).update(room_of(other) for other in others if other != "tidelog")
    return {room: others - {room} for room, others in found.items()}


def test_each_import_between_rooms_is_a_path_in_the_picture() -> None:
    drawn, imports = arrows_drawn(), imports_between_rooms()
    assert len(imports) > 15, "the rooms were found"
    assert {room: left for room, others in imports.items() if (left := others - reached(drawn, room))} == {}


def test_each_arrow_of_the_picture_is_an_import_that_no_path_beside_it_shows() -> None:
    drawn, imports = arrows_drawn(), imports_between_rooms()
    untrue = {room: left for room, ends in drawn.items() if (left := ends - imports[room])}
    assert untrue == {}
    around = {
        (room, end) for room, ends in drawn.items() for end in ends for other in ends - {end} if end in reached(drawn, other)
    }
    assert around == set(), "these can be left out"


def test_the_picture_and_the_table_name_each_module_that_is_no_room() -> None:
    (box,) = re.findall(rf"{SHARED}\[(.*)\]", PICTURE)
    modules = {path.stem for path in (SOURCE / "tidelog").glob("[a-z]*.py")}
    assert set(re.split(r" · |<br/>", box)) == modules
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert {name for name in modules if f"`{name}.py`" not in text} == set()


def top_level_names(module: str, tree: ast.Module) -> frozenset[str] | None:
    """Return what a module of the package offers; None if it makes names when they are asked for."""
    found = {other.rpartition(".")[2] for other in MODULES if other.rpartition(".")[0] == module}
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in statements(waiting.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name == "__getattr__":
                    return None
                found.add(node.name)
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            found |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            waiting.append(node)
    return None if "__getattr__" in found or "*" in found else frozenset(found)


def test_what_tests_and_benches_import_is_there() -> None:
    """`make test` leaves the tests beside real software out, and type checkers read the package alone."""
    missing = []
    for room in ("tests", "bench", "demo", "studies"):
        for path in (ROOT / room).rglob("*.py"):
            for node in all_statements(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module in MODULES:
                    names = facts()[node.module].offers
                    missing += [
                        f"{path.relative_to(ROOT)}:{node.lineno}: {node.module} has no {alias.name}"
                        for alias in node.names
                        if names is not None and alias.name not in names
                    ]
    assert not missing, "\n".join(missing)
