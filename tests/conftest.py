"""How tests are collected quickly and dealt out to workers: file by file, but what shares something dear to one, first.

A Spark session takes longer to start than most tests that use it, and a second one beside it takes memory and processor of
the first. The studies are run once for all that look at them. `make test` has five workers on two cores, `make interop` six: a
test that talks to another process mostly waits. Without pytest-xdist, or without `-n`, nothing of that matters but the order.

Each worker collects everything. In a fresh clone most of that is pytest rewriting the asserts of each file, which it keeps for
the next time: so each worker begins at another place, and takes from the next one's place on what that has kept.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.confinement import pytest_runtest_protocol as pytest_runtest_protocol  # a hook
from tests.examples import DEFAULT, IS_SOAK, drawn

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.loadscope import LoadScopeScheduling

TOGETHER = ("tests/spark/", "tests/studies/", "tests/interop/differential/")
"""What is dealt out as one: it shares a Spark session, the results of studies, a pair of brokers and their table."""

LONG = (
    *("test_migration.py", "test_stream_kills.py", "test_stream_agreement.py", "test_pipeline_kills.py", "test_cluster_soak.py"),
    *("test_engine_folders.py", "test_cluster.py", "test_zookeeper_releases.py", "test_times_in_a_cluster.py"),
    *("test_zookeeper_member.py", "test_exactly_once.py", "test_source_agreement.py", "test_stream_protocol.py"),
    *("test_sink_brokers.py", "test_group_tools.py", "test_handover.py", "test_import.py", "test_installing.py"),
)
"""Files of `make interop` that take a minute and more, the longest first."""

TESTS = Path(__file__).parent
INTEROP = TESTS / "interop"
WITHOUT_INTEROP = "not interop"
"""What `make test` marks."""


pytest.register_assert_rewrite("tests.fields")

FSYNC = {"real": os.fsync, "skipped": lambda fd: os.fstat(fd) and None}
"""What `--fsync` says. Skipped, it fails where a sync would, and leaves the disk alone: there are tens of thousands, and nobody
loses power. What is synced, and when, is seen by tests that look at the calls."""

settings.register_profile("tests", max_examples=drawn(DEFAULT), deadline=None, derandomize=not IS_SOAK)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fsync",
        choices=FSYNC,
        default="real",
        help="skipped: os.fsync leaves the disk alone in this process; processes that tests start sync, and so does os.fdatasync",
    )


def pytest_configure(config: pytest.Config) -> None:
    os.fsync = FSYNC[config.getoption("fsync")]


def pytest_unconfigure() -> None:
    os.fsync = FSYNC["real"]


def pytest_report_header(config: pytest.Config) -> str:
    return f"os.fsync: {config.getoption('fsync')} (--fsync)"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # All of that folder has the mark.
    return True if collection_path == INTEROP and config.getoption("markexpr") == WITHOUT_INTEROP else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    # What is collected stays until the end: the collector of garbage need not look through it again and again.
    gc.disable()
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    if worker and session.config.args_source == pytest.Config.ArgsSource.TESTPATHS:
        _import_from(worker / int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _import_from(share: float) -> None:
    """Import all test modules, those after a share of them first, then those before."""
    paths = [path for path in sorted(TESTS.rglob("test_*.py")) if INTEROP not in path.parents]
    first = int(len(paths) * share)
    for path in paths[first:] + paths[:first]:
        with contextlib.suppress(Exception):  # The collection meets it too, and says more.
            import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What is large goes first: at the end it would keep one worker busy while the others have nothing to do.
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.nodeid.startswith(TOGETHER):
        return -1
    return LONG.index(item.path.name) if item.path.name in LONG and item.path.parent == INTEROP else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)
