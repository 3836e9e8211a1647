"""No circle of imports, also inside rooms, and none hidden in a function. Between rooms import-linter holds the layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"

CIRCLES_OF_TYPES = (
    # A node's parts are made by it and ask it for each other.
    """api, flushes, groups.groups, groups.rebalance, node, server.slices, server.wide_requests, settings.config_entries,
    settings.dynamic_settings, state_log, topic_changes, topics, transactions.completion, transactions.markers,
    transactions.transactions of tidelog.broker""",
    # A connection, its writer and its server; `produce_again` goes.
    "apis.produce_again, server.answer_writer, server.broker_server, server.connection, server.dispatch of tidelog.broker",
    # A member waits for a result, which lists members.
    "group, results of tidelog.broker.groups",
    # What a log does, parted into files by what it is about: each works on the log, which offers it.
    "segment, segment_time of tidelog.reader",
    "log, missing, transactions of tidelog.reader",
    "checked_times, segment_reader of tidelog.storage.segment",
    """flush_job, local_log, log_events, log_state, segment_replacement, watermarks of tidelog.storage.partition""",
    # A split is read by its reader, and its kind's batches by the kind.
    "reader, split of tidelog.sources",
    "files.folder_batches, files.folder_split of tidelog.sources",
)
"""Modules that name each other's types, which only type checkers import: no circle when they run. The list only shrinks."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


def imported(tree: ast.AST, *, with_types: bool = False) -> Iterator[str]:
    """Yield the modules that a file imports when it runs, wherever in it; with what only type checkers read, or without."""
    for node in ast.iter_child_nodes(tree):
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


def graph_of_imports(*, with_types: bool) -> dict[str, set[str]]:
    return {
        name: {
            other
            for other in imported(ast.parse(path.read_text(encoding="utf-8")), with_types=with_types)
            if other in MODULES and other != name
        }
        for name, path in MODULES.items()
    }


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


def test_no_circle_of_types_but_those_that_are_known() -> None:
    known = []
    for line in CIRCLES_OF_TYPES:
        modules, _, room = line.partition(" of ")
        known.append({f"{room}.{name.strip()}" for name in modules.split(",")})
    found = circles(graph_of_imports(with_types=True))
    assert [sorted(circle) for circle in found if not any(circle <= one for one in known)] == []
    assert [sorted(one) for one in known if not any(circle <= one for circle in found)] == [], "circles that are no more"
