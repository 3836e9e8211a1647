"""Each file of tests is in the share of one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shares import HEAVY_S, INTEROP, TESTS, TOGETHER, _own_share, shares


@pytest.mark.parametrize("workers", [2, 5])
def test_each_file_is_in_one_share(workers: int) -> None:
    dealt = [path for worker in range(workers) for path in _own_share(worker, workers)]
    assert sorted(dealt) == sorted(path for path in TESTS.rglob("test_*.py") if INTEROP not in path.parents)


def test_the_heavy_files_are_there() -> None:
    assert [name for name in HEAVY_S if not (TESTS / name).is_file()] == []


def test_studies_are_one_share() -> None:
    dealt = [_own_share(worker, 5) for worker in range(5)]
    (share,) = [share for share in dealt if any(TOGETHER in path.parents for path in share)]
    assert set(TOGETHER.rglob("test_*.py")) <= share


def test_shares_are_even() -> None:
    sizes = {Path(str(size)): size for size in range(100)}
    totals = [sum(sizes[path] for path in share) for share in shares(sizes, 5)]
    assert sum(totals) == sum(range(100)) and max(totals) - min(totals) <= 5
