"""`tidelog job replay` and `bootstrap`: what they refuse before Spark is started. What they do: tests/copying, tests/interop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import run
from tests.sources.logs import TOPIC, LogBuilder
from tests.sources.test_property import NOON


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = LogBuilder(tmp_path / "data")
    builder.append([(NOON, None, b"1")])
    builder.close()
    return builder.data_dir


def test_a_replay_out_of_a_folder_needs_a_target(folder: Path, tmp_path: Path) -> None:
    result = run("job", "replay", folder, TOPIC, "--map", tmp_path / "map")
    assert result.exit_code == 2
    assert "give --target: the source is a folder, which cannot be the target" in result.stderr
    assert not (tmp_path / "map").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--target", "a:1", "--shift-times", "soon"], 2, "the text is not a duration: found 'soon'"),
        (["--target", "a:1", "--from", "2013-07-11", "--to", "2013-07-10"], 2, "before its start"),
        (["--target", "folder"], 1, "the target of a replay must be brokers: found folder, expected host:port"),
    ],
)
def test_a_replay_that_makes_no_sense(folder: Path, tmp_path: Path, arguments: list[str], status: int, message: str) -> None:
    result = run("job", "replay", folder, TOPIC, "--map", tmp_path / "map", *arguments)
    assert result.exit_code == status
    assert message in result.stderr


def test_a_cut_of_something_else(folder: Path, tmp_path: Path) -> None:
    from tidelog.spark.bootstrap import take_cut

    take_cut(folder, [TOPIC]).save(tmp_path / "cut")
    result = run("job", "bootstrap", folder, "--subscribe", "another", "--cut", tmp_path / "cut")
    assert result.exit_code == 1
    assert f"the file has a different cut: found {TOPIC} of {folder} from the start" in result.stderr
    assert result.stdout == ""


def test_a_topic_that_is_not_there_leaves_no_cut(folder: Path, tmp_path: Path) -> None:
    result = run("job", "bootstrap", folder, "--subscribe", "another", "--from", "-3d", "--cut", tmp_path / "cut")
    assert result.exit_code == 1
    assert "no topic 'another'" in result.stderr
    assert not (tmp_path / "cut").exists()
