"""What is public: the names in docs/python.md, in the `__all__` of their modules, and all that the documents use."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "python.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = sorted((ROOT / "demo").glob("*.py"))

HEADING = re.compile(r"^## `(tidelog[\w.]*)`$", re.MULTILINE)
FIRST_CELL = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IN_SHELL = re.compile(r"(from tidelog\S* import \w+)")
DOTTED = re.compile(r"`(tidelog(?:\.\w+)+)[`(]")


def public_names() -> dict[str, list[str]]:
    """The names of each module that docs/python.md lists."""
    text = PAGE.read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    headings = [*HEADING.finditer(text)]
    for heading, end in zip(headings, [*(one.start() for one in headings[1:]), len(text)], strict=True):
        for cell in FIRST_CELL.findall(text[heading.end() : end]):
            module, _, name = cell.rpartition(".")
            found.setdefault(module or heading[1], []).append(name)
    return found


PUBLIC = public_names()


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def used_names(text: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import of ours in a program."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tidelog":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tidelog":
            yield "tidelog", node.attr


def test_the_page_and_the_modules_name_the_same() -> None:
    assert sum(map(len, PUBLIC.values())) > 100, "the names were found"
    for module, names in PUBLIC.items():
        assert sorted(names) == sorted(import_module(module).__all__), module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_documents_use_public_names_only(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    used = {one for code in PYTHON.findall(text) for one in used_names(code)}
    used |= {one for code in IN_SHELL.findall(text) for one in used_names(code)}
    for dotted in DOTTED.findall(text):
        module, _, name = dotted.rpartition(".")
        # `tidelog.log.append.time.monotonic` is a property, `tidelog.formats` a room.
        if is_module(module) and not is_module(dotted) and (module != "tidelog" or hasattr(import_module(module), name)):
            used.add((module, name))
    private = {(module, name) for module, name in used if name not in PUBLIC.get(module, ())}
    assert private == set()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_demo_uses_public_names_only(program: Path) -> None:
    private = {one for one in used_names(program.read_text(encoding="utf-8")) if one[1] not in PUBLIC.get(one[0], ())}
    assert private == set()


def things(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the classes and functions that a module exports, and the public methods of the classes that are ours."""
    for name in module.__all__:
        thing = getattr(module, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield name, thing
        if inspect.isclass(thing) and not getattr(thing, "_is_protocol", False):
            for method, body in vars(thing).items():
                if not method.startswith("_") and (inspect.isfunction(body) or isinstance(body, property | classmethod)):
                    yield f"{name}.{method}", body


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_public_names_are_described(module: str) -> None:
    """A sentence of its own for each class, function and method; one that overrides another may leave it to that."""
    for name, thing in things(import_module(module)):
        text = inspect.getdoc(thing) or ""
        inherited = "." in name and any(
            inspect.getdoc(getattr(base, name.rpartition(".")[2], None))
            for base in getattr(import_module(module), name.split(".")[0]).__mro__[1:]
        )
        assert text or inherited, f"{module}.{name} has no docstring"
        assert not text.startswith("See the module"), f"{module}.{name} says nothing itself"


def test_a_package_costs_nothing_until_its_names_are_used() -> None:
    from tidelog import storage

    with pytest.raises(AttributeError, match=r"'tidelog\.storage' has no attribute 'nothing'"):
        _ = storage.nothing
    assert storage.LogManager.__name__ == "LogManager"
