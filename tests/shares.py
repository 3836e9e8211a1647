"""How `make test` is distributed: each worker collects and runs its own share of the files.

Collecting takes a tenth of the tests' time, and if each worker collects everything (as with pytest-xdist), five workers do it
five times. The shares are balanced by file size, which is accurate enough: five workers share two cores, and the last one runs
alone for seconds only. A worker that dies ends the run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler.each import EachScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

TESTS = Path(__file__).parent
INTEROP = TESTS / "interop"
TOGETHER = TESTS / "studies"
"""Expensive results that run once for all tests of them: one share."""

WITHOUT_INTEROP = "not interop"
"""The mark expression of `make test`."""


def is_shared(config: pytest.Config) -> bool:
    """Whether this is `make test`: all tests but those of interop, and several workers."""
    everything = config.args_source == pytest.Config.ArgsSource.TESTPATHS and config.getoption("markexpr") == WITHOUT_INTEROP
    return everything and _workers(config) > 1


def _workers(config: pytest.Config) -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT") or config.getoption("numprocesses", None) or 0)


def is_of_another(path: Path) -> bool:
    """Whether a test file is in another worker's share."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or not (path.name.startswith("test_") and path.suffix == ".py"):
        return False
    return path not in _own_share(int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


@cache
def _own_share(worker: int, workers: int) -> frozenset[Path]:
    paths = [path for path in sorted(TESTS.rglob("test_*.py")) if INTEROP not in path.parents]
    return shares({path: path.stat().st_size for path in paths}, workers)[worker]


def shares(sizes: dict[Path, int], workers: int) -> list[frozenset[Path]]:
    """Return each worker's files: the largest first, each to the worker with the least."""
    units: dict[Path, list[Path]] = defaultdict(list)
    for path in sizes:
        units[TOGETHER if TOGETHER in path.parents else path].append(path)
    dealt: list[list[Path]] = [[] for _ in range(workers)]
    has = [0] * workers

    def size(unit: Path) -> int:
        return sum(sizes[path] for path in units[unit])

    for unit in sorted(units, key=lambda unit: (-size(unit), unit)):
        least = has.index(min(has))
        dealt[least] += units[unit]
        has[least] += size(unit)
    return [frozenset(paths) for paths in dealt]


class ByShare(EachScheduling):
    """Each worker runs the tests that it has collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._dsession = config.pluginmanager.getplugin("dsession")
        # Another worker would have to collect the dead worker's files.
        self._dsession._max_worker_restart = 0

    def schedule(self) -> None:
        """Start all workers as soon as all have collected."""
        _check(self.node2collection.values())
        # For the progress display: pytest-xdist assumes that all workers have the same tests.
        self._dsession._session.testscollected = sum(map(len, self.node2collection.values()))
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which a worker died. Its remaining tests are not run."""
        crashed = super().remove_node(node)
        self._removed2pending.clear()
        return crashed


def _check(collections: Iterable[Sequence[str]]) -> None:
    """Check that no test runs twice."""
    seen: set[str] = set()
    for collection in collections:
        files = {test.partition("::")[0] for test in collection}
        assert not files & seen, f"two workers collected {min(files & seen)}"
        seen |= files
