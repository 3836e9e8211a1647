"""The house's measures: one concept a file, a room of few files, and names that say what is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "tidelog"
PLACES = (ROOT / "src", ROOT / "studies", ROOT / "bench", ROOT / "demo")

MAX_LINES = 450
MAX_FILES = 20

LONG_FILES: dict[str, str] = {}
"""Files that may be longer for now, and why. The list only shrinks."""

WIDE_FOLDERS: dict[str, str] = {
    "src/tidelog/wire/messages": "a file an API, as Kafka has them",
    "src/tidelog/broker/apis": "a file an API, as Kafka has them",
}


def files() -> list[Path]:
    """Every file of Python or Cython that somebody wrote; what Cython makes of them is no `.py`."""
    found = [path for place in PLACES for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi") for path in place.rglob(suffix)]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_long() -> None:
    lines = {name_of(path): path.read_text(encoding="utf-8").count("\n") for path in files()}
    assert len(lines) > 600, "the files were found"
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert {name: count for name, count in long.items() if name not in LONG_FILES} == {}
    assert sorted(name for name in LONG_FILES if name not in long) == [], "exceptions that nothing needs any more"


def test_no_folder_is_wide() -> None:
    wide: dict[str, int] = {}
    for folder in {path.parent for path in files()}:
        count = sum(path.suffix in (".py", ".pyx") for path in folder.iterdir())
        if count > MAX_FILES:
            wide[name_of(folder)] = count
    assert {name: count for name, count in wide.items() if name not in WIDE_FOLDERS} == {}
    assert sorted(name for name in WIDE_FOLDERS if name not in wide) == [], "exceptions that nothing needs any more"


@pytest.mark.parametrize("room", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_each_room_says_what_it_owns(room: str) -> None:
    for path in (SOURCE / room).rglob("__init__.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), name_of(path)


# --- Nothing is in the package for tests alone

ONLY_BY_HAND = frozenset(
    {
        "clean_filthiest_log",  # An owner without threads has a pass of compaction done at once.
        "first_undecided_offset",  # What a transaction's model is compared with, beside first_unstable_offset.
    }
)
"""Functions of the package that neither it nor its documents name, and what they are for."""

INHERITED_FROM = frozenset({"ABC", "Protocol", "NamedTuple", "Enum", "IntEnum", "StrEnum", "Exception", "Generic", "Message"})
"""Bases that call nothing by name; whatever else comes from elsewhere may call its methods."""

UNCALLED_DECORATORS = frozenset({"property", "cached_property", "staticmethod", "classmethod", "abstractmethod", "dataclass"})
"""A name under any other decorator may be used by that: commands, fixtures, what is run at exit."""


NAMING = (ast.Name, ast.Attribute, ast.Constant)


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what ast.walk does, in half its time, without whether a name is loaded or stored."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for field in node._fields:
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                left += [one for one in inner if isinstance(one, ast.AST)]
            elif isinstance(inner, ast.AST) and not isinstance(inner, ast.expr_context):
                left.append(inner)


def names_used(node: ast.AST) -> Iterator[str]:
    """Yield what a node loads, reaches for, or has as a string: strings name what is imported lazily."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
        yield from re.findall(r"\w+", node.value)


def names_defined(body: list[ast.stmt], own: set[str]) -> Iterator[str]:
    """Yield the functions, classes and methods that stand or fall with being named somewhere; `own` are the package's classes."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        decorators = {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list}
        if node.name.startswith("__") or decorators - UNCALLED_DECORATORS:
            continue
        if not isinstance(node, ast.ClassDef):
            yield node.name
            continue
        bases = {re.split(r"[\[(]", ast.unparse(one))[0].removeprefix("enum.") for one in node.bases}
        if "Message" not in bases:  # Messages and records are found by their numbers.
            yield node.name
        if bases <= own | INHERITED_FROM:
            yield from names_defined(node.body, own)


def test_nothing_in_the_package_is_for_tests_alone() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")]
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxd")]
    used = {name for page in pages for name in re.findall(r"\w+", page.read_text(encoding="utf-8"))}
    own: set[str] = set()
    for tree in trees:
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, NAMING):
                used.update(names_used(node))
    defined = {name for tree in trees for name in names_defined(tree.body, own)}
    assert len(defined) > 3_000, "the functions were found"
    assert sorted(defined - used - ONLY_BY_HAND) == []
