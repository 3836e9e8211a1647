"""A case's folder: empty, gone afterwards, in memory only where there is plenty and nobody said otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from studies import work_dir as module
from studies.work_dir import PLENTY_BYTES, work_dir


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that passes for memory, with plenty in it."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(module, "MEMORY", folder)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    free_bytes(monkeypatch, PLENTY_BYTES)
    return folder


def free_bytes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=count // 4096, f_frsize=4096))


def test_the_folder_is_empty_and_gone_afterwards(memory: Path) -> None:
    with pytest.raises(KeyError), work_dir() as folder:
        assert list(folder.iterdir()) == [] and folder.parent == memory
        (folder / "log").mkdir()
        raise KeyError
    assert list(memory.iterdir()) == []


def test_too_little_memory_is_left_alone(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free_bytes(monkeypatch, PLENTY_BYTES - 4096)
    with work_dir() as folder:
        assert folder.parent == memory.parent


def test_no_memory_that_is_a_folder(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(module, "MEMORY", memory / "none")
    with work_dir() as folder:
        assert folder.parent == Path(tempfile.gettempdir())


def test_the_environment_says_where(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(memory.parent))
    with work_dir() as folder:
        assert folder.parent == memory.parent


ROOT = Path(__file__).resolve().parents[2]
LEAVES_ONE = """
import os, pathlib, sys
from studies import work_dir as module
module.MEMORY = pathlib.Path(sys.argv[1])
module.PLENTY_BYTES = 0
with module.work_dir() as folder:
    (folder / "log").mkdir()
    os._exit(9)
"""


def test_what_a_killed_process_leaves_is_removed(memory: Path) -> None:
    with work_dir() as own:
        (own / "kept").touch()
        subprocess.run(
            [sys.executable, "-c", LEAVES_ONE, memory],
            check=False,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        )
        assert len(list(memory.iterdir())) == 2
        module.remove_abandoned()
        assert list(memory.iterdir()) == [own] and list(own.iterdir()) == [own / "kept"]
        with work_dir() as other:
            assert set(memory.iterdir()) == {own, other}


def test_patience_has_an_end(memory: Path) -> None:
    with work_dir() as own:
        module.remove_abandoned(at_most_s=0.2)
        assert own.is_dir()


def test_what_a_process_begins_while_it_ends_is_removed(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark kills its workers some time after it was told to."""
    remove, looks = module._remove_unlocked, iter(range(1000))

    def begun_after_the_first_look() -> bool:
        is_locked = remove()
        if next(looks) == 0:
            (memory / f"{module.PREFIX}late").mkdir()
        return is_locked

    monkeypatch.setattr(module, "_remove_unlocked", begun_after_the_first_look)
    module.remove_abandoned(at_least_s=0.1)
    assert list(memory.iterdir()) == []
