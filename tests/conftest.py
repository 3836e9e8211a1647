"""How tests are collected quickly and distributed to workers: for `make test` by shares of files (`tests/shares.py`), else file
by file. Tests that share an expensive resource go to one worker, and run first.

A Spark session takes longer to start than most tests that use it, and a second one takes memory and processor time from the
first. The studies run once for all tests of their results. `make test` has five workers on two cores, `make interop` eight: a
test that talks to another process mostly waits. Without pytest-xdist, or without `-n`, only the order matters.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import in_memory, shares
from tests.confinement import pytest_runtest_protocol as pytest_runtest_protocol  # a hook
from tests.examples import DEFAULT, IS_SOAK, drawn
from tests.in_memory import disk_path as disk_path  # fixtures
from tests.in_memory import root_of_nested_runs as root_of_nested_runs

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.each import EachScheduling
    from xdist.scheduler.loadscope import LoadScopeScheduling

TOGETHER = ("tests/spark/", "tests/studies/", "tests/interop/differential/")
"""Tests that go to one worker: they share a Spark session, the results of studies, or a pair of brokers and their table."""

SINKS = ("tests/spark/test_sink", "tests/spark/test_columnar.py", "tests/spark/test_stream", "tests/spark/test_brokers.py")
"""Of Spark's tests, those that go to a second worker: one would end long after all others."""

DRIVER = tuple(
    f"tests/interop/test_{name}.py"
    for name in ("source_agreement", "stream_agreement", "stream_oracle", "bootstraps", "replays", "connector_page")
)
"""Tests that go to one worker: they share a broker of Kafka and a driver with Spark's connector, `spark_program`."""

ALONE = ("tests/spark/test_session.py", "tests/spark/test_job_processes.py")
"""Files in these folders that share nothing: their sessions are processes of their own."""

LONG = (
    *(
        "test_migration.py",
        "test_session.py",
        "test_job_processes.py",
        "test_pipeline_kills.py",
        "test_import.py",
        "test_cluster_admin.py",
        "test_cluster.py",
    ),
    *("test_installing.py", "test_spark_secrets.py", "test_secured_client.py", "test_careful.py"),
    *("test_stream_kills.py", "test_spark_connector.py", "test_page.py", "test_modern_groups.py", "test_admin_tools.py"),
    *("test_stream_protocol.py", "test_live_folder.py", "test_object_storage_spark.py"),
    *("test_group_tools.py", "test_cluster_soak.py", "test_sink_brokers.py", "test_exactly_once.py"),
    *("test_kraft_member.py", "test_sink_folders.py", "test_engine_folders.py", "test_operators_steps.py", "test_mirror.py"),
    *("test_real_clients.py", "test_handover.py", "test_cluster_coordinators.py", "test_java_groups.py", "test_kraft_plane.py"),
    *("test_zookeeper_releases.py", "test_quotas.py", "test_metadata_rounds.py", "test_verify.py"),
)
"""Files of `make interop` that take a minute and more, the longest first."""

pytest.register_assert_rewrite("tests.fields")

FSYNC = {"real": os.fsync, "skipped": lambda fd: os.fstat(fd) and None}
"""The option `--fsync`. If skipped, a sync still fails where a real one would, but does not touch the disk: there are tens of
thousands, and no test loses power. Tests check the calls to verify what is synced, and when.
"""

GC_THRESHOLDS = (10_000, 20, 50)
"""Python's are made for small programs. What tests build at once, as a package's syntax trees, it walks through ten times."""

# Times without a zone are in UTC here, whatever the machine's owner prefers.
os.environ.pop("TIDELOG_TZ", None)

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
    in_memory.place_folders(config)
    if hasattr(config, "workerinput") and shares.is_shared(config):
        shares.report_less(config)


def pytest_unconfigure() -> None:
    os.fsync = FSYNC["real"]
    # What is frozen survives the interpreter's end, of which DuckDB's binding complains as "nanobind: leaked ...".
    gc.unfreeze()


def pytest_report_header(config: pytest.Config) -> str:
    return f"os.fsync: {config.getoption('fsync')} (--fsync)"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # All tests in that folder have the mark.
    if collection_path == shares.INTEROP and config.getoption("markexpr") == shares.WITHOUT_INTEROP:
        return True
    return True if shares.is_shared(config) and shares.is_of_another(collection_path) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    # Collected tests live until the end: the garbage collector need not scan them repeatedly.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Large groups run first: at the end, they would keep one worker busy while the others are idle.
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.nodeid.startswith((*TOGETHER, *DRIVER)) and not item.nodeid.startswith(ALONE):
        return -1
    is_of_interop = shares.INTEROP in item.path.parents or item.nodeid.startswith(ALONE)
    return LONG.index(item.path.name) if is_of_interop and item.path.name in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> EachScheduling | LoadScopeScheduling:
    if shares.is_shared(config):
        return shares.ByShare(config, log)
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file in ALONE:
                return file
            groups = (SINKS, DRIVER, *((folder,) for folder in TOGETHER))
            return next((group[0] for group in groups if file.startswith(group)), file)

    config.option.loadscopereorder = False
    return ByFile(config, log)
