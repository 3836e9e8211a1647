"""How `make test` is distributed: each worker collects and runs its own share of the files.

Collecting takes a tenth of the tests' time, and if each worker collects everything (as with pytest-xdist), five workers do it
five times. The shares are balanced by file size and `HEAVY_S`, so that no worker runs alone for long at the end. A worker that
dies ends the run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler.each import EachScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

TESTS = Path(__file__).parent
INTEROP = TESTS / "interop"
TOGETHER = TESTS / "studies"
"""Expensive results that run once for all tests of them: one share."""

HEAVY_S = {
    "cli/test_serve_processes.py": 25,
    "tutorials/test_tutorials.py": 14,
    "restore/test_hazards.py": 13,
    "objects/test_changing.py": 4,
    "ingest/test_import.py": 11,
    "reader/tiered/test_golden_tiered.py": 4,
    "broker/test_testing.py": 11,
    "objects/test_sources_golden.py": 6,
    "objects/test_reader_golden.py": 6,
    "web/test_answers.py": 9,
    "backup/test_foreign.py": 8,
    "broker/test_widest.py": 8,
    "cli/test_cat.py": 8,
    "cli/test_serve.py": 8,
    "cli/test_serve_end.py": 7,
    "reader/test_hint_damage.py": 5,
    "storage/test_index_files.py": 7,
    "test_imports.py": 7,
    "test_words.py": 7,
    "check/test_replacements.py": 6,
    "broker/test_scarce.py": 5,
    "objects/test_enemy.py": 5,
    "storage/test_hint_damage.py": 5,
    "test_house.py": 5,
}
"""Seconds of processor time of the files that need much more than their size suggests."""

BYTES_A_SECOND = 7000
"""How much of the other files is tested in a second of processor time."""

UNUSED = ("setup", "teardown")
"""Phases of tests whose reports the controller only counts, unless they say what is wrong."""

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
    sizes = {path: path.stat().st_size + BYTES_A_SECOND * HEAVY_S.get(str(path.relative_to(TESTS)), 0) for path in paths}
    return shares(sizes, workers)[worker]


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


def report_less(config: pytest.Config) -> None:
    """In a worker: keep back the messages with which the controller does nothing, two thirds of what each test sends.

    A message takes as long as running a short test does. With `--durations`, or a report in XML, nothing is kept back.
    """
    if config.getoption("durations") or config.getoption("xmlpath"):
        return
    (interactor,) = (plugin for plugin in config.pluginmanager.get_plugins() if type(plugin).__name__ == "WorkerInteractor")
    send = interactor.sendevent

    def sendevent(name: str, **content: Any) -> None:
        is_unused = name == "testreport" and content["data"]["outcome"] == "passed" and content["data"]["when"] in UNUSED
        if name not in ("logstart", "logfinish") and not is_unused:
            send(name, **content)

    interactor.sendevent = sendevent


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

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Show progress, too: workers do not say that a test is over twice."""
        super().mark_test_complete(node, item_index, duration)
        self.config.hook.pytest_runtest_logfinish(nodeid=self.node2collection[node][item_index], location=("", None, ""))

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
