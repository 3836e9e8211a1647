"""The examples of docs/storage.md: they run, and say what the page says."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.known_topics import forget
from tidelog.storage import log_manager
from tidelog.storage.manager_config import ManagerConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "storage.md"
EXAMPLES = {
    heading.strip(): code
    for heading, code in re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
}
PRINTED = {
    "A topic, written and read": "0 2\n1 b'value 1'\n2 b'value 2'",
    "By time": "TimestampAndOffset(timestamp=1373450460000, offset=1, leader_epoch=0)\n2 3",
    "Time passes": "50 240 8\n9",
    "Producers": "0 False\n0 True",
    "When the disk refuses": (
        "the partition is offline: append: cannot write a file: No space left on device (PATH)\n"
        "[TopicPartition(topic='orders', partition=0)] 3\n3"
    ),
    "A folder from elsewhere": "{} TopicPartition(topic='orders', partition=0) False\n['orders']",
}


def run(example: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"DATA": folder / "data", "BACKUP": folder / "backup", **disk(patch)}
    exec(compile(EXAMPLES[example], f"{PAGE.name}: {example}", "exec"), names)


def disk(patch: pytest.MonkeyPatch) -> dict[str, Callable[[], None]]:
    def break_the_disk() -> None:
        def refuse(fd: int, data: bytes, position: int) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "pwrite", refuse)

    return {"break_the_disk": break_the_disk, "mend_the_disk": patch.undo}


def test_every_example_is_tested() -> None:
    assert EXAMPLES.keys() == PRINTED.keys()
    assert PAGE.read_text().count("```python") == len(EXAMPLES)


@pytest.mark.parametrize("example", PRINTED)
def test_example(example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if example != "A topic, written and read":
        run("A topic, written and read", tmp_path, monkeypatch)
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        forget(tmp_path / "backup")
    capsys.readouterr()
    run(example, tmp_path, monkeypatch)
    printed = re.sub(r"\(/.*? at byte \d+\)", "(PATH)", capsys.readouterr().out.strip())
    assert printed == PRINTED[example]


def test_the_page_names_every_property_with_its_default() -> None:
    text = PAGE.read_text()
    table = dict(re.findall(r"^(\S+\.\S+) {2,}(\S.*?) {2,}", module_doc(), re.MULTILINE))
    assert len(table) == len(
        set(ManagerConfig.__dataclass_fields__)
        - {"topic_defaults", "is_member", "has_message_formats", "newest_magic", "has_topics_without_ids"}
    )
    for name, default in table.items():
        assert f"`{name}`" in text
        if default.isdecimal() and len(default) < 19:
            assert re.search(rf"`{re.escape(name)}` \| {default} \|", text), name


def module_doc() -> str:
    from tidelog.storage import manager_config

    assert manager_config.__doc__ is not None
    return manager_config.__doc__


def test_the_page_names_what_the_manager_does_with_topics() -> None:
    text = PAGE.read_text()
    ours = vars(log_manager.LogManager)
    for name in re.findall(r"`([a-z_]+)\(", text):
        assert name in ours, name
