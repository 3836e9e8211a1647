"""How `make test` is dealt out: each worker collects its own share of the files, and runs that.

To collect takes as long as a tenth of the tests does, and where each worker collects everything (as pytest-xdist has it), five
workers do it five times. The shares are even by the size of the files, which is near enough: five workers share two cores, and
the last one to end has them for seconds only. A worker that dies ends the run.
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
"""Run once for all that look at them: one share."""

WITHOUT_INTEROP = "not interop"
"""What `make test` marks."""


def is_shared(config: pytest.Config) -> bool:
    """Whether this is `make test`: all tests but those of interop, and several workers."""
    everything = config.args_source == pytest.Config.ArgsSource.TESTPATHS and config.getoption("markexpr") == WITHOUT_INTEROP
    return everything and _workers(config) > 1


def _workers(config: pytest.Config) -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT") or config.getoption("numprocesses", None) or 0)


def is_of_another(path: Path) -> bool:
    """Whether a file of tests is in the share of another worker than this one."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or not (path.name.startswith("test_") and path.suffix == ".py"):
        return False
    return path not in _own_share(int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


@cache
def _own_share(worker: int, workers: int) -> frozenset[Path]:
    paths = [path for path in sorted(TESTS.rglob("test_*.py")) if INTEROP not in path.parents]
    return shares({path: path.stat().st_size for path in paths}, workers)[worker]


def shares(sizes: dict[Path, int], workers: int) -> list[frozenset[Path]]:
    """Return the files of each worker: the largest first, to who has least."""
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
    """Each worker runs what it has collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._dsession = config.pluginmanager.getplugin("dsession")
        # Another worker would have to collect what the one that died had.
        self._dsession._max_worker_restart = 0

    def schedule(self) -> None:
        """Start all, as soon as all have collected."""
        _check(self.node2collection.values())
        # What progress is shown of; pytest-xdist takes it that all have the same.
        self._dsession._session.testscollected = sum(map(len, self.node2collection.values()))
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test in which a worker died. What it had left is run by nobody."""
        crashed = super().remove_node(node)
        self._removed2pending.clear()
        return crashed


def _check(collections: Iterable[Sequence[str]]) -> None:
    """Nothing is run twice."""
    seen: set[str] = set()
    for collection in collections:
        files = {test.partition("::")[0] for test in collection}
        assert not files & seen, f"two workers collected {min(files & seen)}"
        seen |= files
