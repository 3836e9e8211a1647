"""One word, one definition: what `tidelog.model` names is defined nowhere else in the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog import model
from tidelog.errors import InvalidArgumentError

PACKAGE = Path(tidelog.__file__).parent
TOPICS = {model.OFFSETS_TOPIC, model.TRANSACTIONS_TOPIC, model.SHARE_GROUPS_TOPIC, model.METADATA_TOPIC}
WORDS = {name for name in vars(model) if not name.startswith("_") and getattr(model, name, None) is not None} - {
    # what the module itself imports
    *("annotations", "re", "Final", "Literal", "NamedTuple", "TypeAlias", "get_args", "InvalidArgumentError"),
}


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield what a module defines at its top, underscores before the name taken off."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.Assign):
            yield from (target.id.lstrip("_") for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id.lstrip("_")


def topics_written(tree: ast.Module) -> Iterator[str]:
    """Yield the internal topics that stand in a module as values, not within sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in TOPICS:
            yield node.value


@pytest.mark.parametrize("room", sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"))
def test_a_word_is_defined_once(room: str) -> None:
    """The kernels have C constants of their own, which the compiler puts in place."""
    again = []
    for path in (PACKAGE / room).rglob("*.py"):
        if path.is_relative_to(PACKAGE / "records" / "kernel"):
            continue
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in (*WORDS, *TOPICS)):
            continue
        tree = ast.parse(text)
        # Structs of the wire have the names of Kafka's own definitions.
        words = WORDS - {"TopicPartition"} if path.is_relative_to(PACKAGE / "wire" / "coordinator") else WORDS
        again += [f"{path.relative_to(PACKAGE)}: {name}" for name in defined(tree) if name in words]
        again += [f"{path.relative_to(PACKAGE)}: {name!r}" for name in topics_written(tree)]
    assert again == []


def test_the_check_sees_a_second_definition() -> None:
    tree = ast.parse(
        '_LATEST = -1\nIsolation: object = str\nclass TopicPartition: ...\ndef is_topic_name(): ...\nx = ["__cluster_metadata"]'
    )
    assert [name for name in defined(tree) if name in WORDS] == ["LATEST", "Isolation", "TopicPartition", "is_topic_name"]
    assert list(topics_written(tree)) == [model.METADATA_TOPIC]


def test_isolation_levels() -> None:
    assert [model.check_isolation(level) for level in model.ISOLATION_LEVELS] == ["read_uncommitted", "read_committed"]
    with pytest.raises(InvalidArgumentError, match=re.escape("read_uncommitted or read_committed")):
        model.check_isolation("read_comitted")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a", True),
        ("a.b_c-D9", True),
        ("...", True),
        ("a" * 249, True),
        ("a" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
    ]
    + [(name, False) for name in ("a b", "a/b", "é", "٣", "a\n")],
)
def test_topic_names(name: str, is_one: bool) -> None:
    assert model.is_topic_name(name) is is_one
