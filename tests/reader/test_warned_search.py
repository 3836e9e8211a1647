"""`tidelog.find_offset` warns of what is missing from the folder and could change its answer, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.reader import build
from tests.reader.build import LogBuilder
from tidelog.errors import IncompleteLogWarning
from tidelog.formats import names
from tidelog.reader.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three segments of two records, of the times 0 to 5; the middle one is gone."""
    builder = LogBuilder(tmp_path / "t-0")
    for base in (0, 2, 4):
        builder.roll() if base else None
        builder.append(build.batch(base, [base, base + 1]))
    builder.close()
    for suffix in (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        builder.file(2, suffix).unlink()
    return builder.open()


@pytest.mark.parametrize("target", [2, 5, 99, -3])
def test_what_could_change_the_answer(log: Log, target: int) -> None:
    with pytest.warns(IncompleteLogWarning, match=r"t-0: offsets \[2, 4\) missing"):
        tidelog.find_offset(log, target)


@pytest.mark.parametrize("target", [0, 1, -1, -2])
def test_what_could_not(log: Log, target: int) -> None:
    assert tidelog.find_offset(log, target) is not None  # Warnings are errors here.


def test_it_names_the_caller(log: Log) -> None:
    with pytest.warns(IncompleteLogWarning) as caught:
        tidelog.find_offset(log, 3)
    assert caught[0].filename == __file__
