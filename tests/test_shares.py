"""Each file of tests is in the share of one worker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.shares import HEAVY_S, INTEROP, TESTS, TOGETHER, _own_share, report_less, shares


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


class WorkerInteractor:
    """Named as pytest-xdist's, which is not importable."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def sendevent(self, name: str, **content: Any) -> None:
        self.sent.append((name, content))


@pytest.mark.parametrize("options", [{}, {"durations": 5}, {"xmlpath": "report.xml"}], ids=str)
def test_what_a_worker_keeps_back(options: dict[str, Any]) -> None:
    worker = WorkerInteractor()
    plugins = SimpleNamespace(get_plugins=lambda: [worker, SimpleNamespace()])
    report_less(cast("pytest.Config", SimpleNamespace(getoption=options.get, pluginmanager=plugins)))
    reports = [(when, outcome) for when in ("setup", "call", "teardown") for outcome in ("passed", "failed", "skipped")]
    worker.sendevent("logstart", nodeid="t")
    for when, outcome in reports:
        worker.sendevent("testreport", data={"when": when, "outcome": outcome})
    worker.sendevent("logfinish", nodeid="t")
    worker.sendevent("runtest_protocol_complete", item_index=0)
    left = [(content["data"]["when"], content["data"]["outcome"]) for name, content in worker.sent if name == "testreport"]
    if options:
        assert left == reports and len(worker.sent) == len(reports) + 3
    else:
        assert left == [one for one in reports if one not in (("setup", "passed"), ("teardown", "passed"))]
        assert [name for name, _ in worker.sent if name != "testreport"] == ["runtest_protocol_complete"]
