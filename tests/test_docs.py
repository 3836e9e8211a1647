"""What the documents promise about the tree: named tests exist, links lead somewhere, ids refer to rows, lists are whole."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").glob("**/*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]
TABLES = [ROOT / "docs" / "sources.md", ROOT / "docs" / "conformance.md"]

# tests/formats/test_time_index.py::test_look_up, perhaps with a class between and parameters after
NODE_ID = re.compile(r"`(tests/[\w/.-]+\.py)((?:::\w+)*)(?:\[[^\]`]*\])?`")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
ROW_ID = re.compile(r"^\| ((?:KIP33|ART|OLD|LOOK|KIP32)-\d+) \|", re.MULTILINE)
REFERENCE = re.compile(r"\b((?:KIP33|ART|OLD|LOOK)-\d+|KIP32-\d+)\b")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@functools.cache
def definitions(path: Path) -> frozenset[str]:
    """The names of a test file as pytest spells them after the path: `::test_a`, `::TestB`, `::TestB::test_c`."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}::{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}::{node.name}")
            if isinstance(node, ast.Assign):  # a stateful test: TestLog = LogMachine.TestCase
                yield from (f"{prefix}::{target.id}" for target in node.targets if isinstance(target, ast.Name))

    return frozenset(walk(ast.parse(path.read_text(encoding="utf-8")).body, ""))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_named_in_a_document_exist(page: Path) -> None:
    missing = []
    for file, names in set(NODE_ID.findall(page.read_text(encoding="utf-8"))):
        path = ROOT / file
        if not path.is_file() or (names and names not in definitions(path)):
            missing.append(file + names)
    assert not missing, f"{name_of(page)} names tests that do not exist: {sorted(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_files(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [target.partition("#")[0] for target in LINK.findall(text) if not re.match(r"[a-z]+:|#", target)]
    broken = sorted({target for target in targets if not (page.parent / target).exists()})
    assert not broken, f"{name_of(page)} links to files that do not exist: {broken}"


def anchors(page: Path) -> frozenset[str]:
    """The headings of a page, as GitHub spells them in addresses."""
    found: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return frozenset(names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_into_pages_lead_to_headings(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    broken = set()
    for target in LINK.findall(text):
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        if anchor and not re.match(r"[a-z]+:", target) and there.suffix == ".md" and anchor not in anchors(there):
            broken.add(target)
    assert not broken, f"{name_of(page)} links to headings that do not exist: {sorted(broken)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_rows_of_tables_are_closed(page: Path) -> None:
    lines = CODE.sub(lambda code: "\n" * code.group().count("\n"), page.read_text(encoding="utf-8")).splitlines()
    open_rows = [number for number, line in enumerate(lines, 1) if line.startswith("|") and not line.rstrip().endswith("|")]
    assert not open_rows, f"{name_of(page)}: rows without their closing bar: {open_rows}"


def test_the_readme_lists_every_page() -> None:
    listed = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    missing = [name_of(page) for page in DOCS if page.parent.name == "docs" and name_of(page) not in listed]
    missing += [folder for folder in ("docs/spec", "docs/decisions", "docs/tutorials") if f"{folder}/README.md" not in listed]
    assert not missing, f"README.md does not list {missing}"


@pytest.mark.parametrize("folder", ["spec", "decisions", "tutorials"])
def test_a_folder_of_pages_lists_them(folder: str) -> None:
    pages = (ROOT / "docs" / folder).glob("*.md")
    listed = set(LINK.findall((ROOT / "docs" / folder / "README.md").read_text(encoding="utf-8")))
    assert sorted(page.name for page in pages if page.name != "README.md" and page.name not in listed) == []


def test_source_ids_are_unique_and_references_resolve() -> None:
    text = TABLES[0].read_text(encoding="utf-8")
    rows = ROW_ID.findall(text)
    assert len(rows) > 300
    assert [row for row, count in Counter(rows).items() if count > 1] == []
    assert sorted(set(REFERENCE.findall(text)) - set(rows)) == []


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_rows_have_as_many_cells_as_their_heading(table: Path) -> None:
    heading = ""
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            heading = ""
            continue
        heading = heading or line
        assert line.count("|") == heading.count("|"), f"{name_of(table)}:{number}: {line}"


def test_every_source_row_names_a_test_a_plan_or_another_row() -> None:
    """Columns: id, what it says, what Tidelog does, test, Kafka. A row that repeats another one refers to that."""
    for line in TABLES[0].read_text(encoding="utf-8").splitlines():
        if not ROW_ID.match(line):
            continue
        row, _says, does, test, _kafka = (cell.strip() for cell in line.strip("|").split(" | "))
        shown = NODE_ID.search(test) or "planned: " in test or (test == "-" and REFERENCE.search(does))
        assert shown, f"{row}: {test}"


def test_rooms_and_files_of_the_architecture_exist() -> None:
    text = CODE.sub("", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", text))
    assert "reader/time_search.py" in named
    package = ROOT / "src" / "tidelog"
    missing = sorted(name for name in named if not any((place / name).exists() for place in (package, package / "broker", ROOT)))
    assert missing == []


def test_the_architecture_names_each_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "src" / "tidelog").glob("*/__init__.py")}
    assert {room for room in rooms if f"`{room}/`" not in text} == set()


def test_threads_of_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## Who runs where")[2].partition("**Startup**")[0]
    named = [name for row in re.findall(r"^\| (`[^|]*)\|", table, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)]
    assert len(named) > 8
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert [name for name in named if f'"{name}"' not in code] == []
