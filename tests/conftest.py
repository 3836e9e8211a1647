"""How tests are collected quickly and dealt out to workers: `make test` by shares of files (`tests/shares.py`), all else file by
file, but what shares something dear to one, first.

A Spark session takes longer to start than most tests that use it, and a second one beside it takes memory and processor of
the first. The studies are run once for all that look at them. `make test` has five workers on two cores, `make interop` eight: a
test that talks to another process mostly waits. Without pytest-xdist, or without `-n`, nothing of that matters but the order.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import shares
from tests.confinement import pytest_runtest_protocol as pytest_runtest_protocol  # a hook
from tests.examples import DEFAULT, IS_SOAK, drawn

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.each import EachScheduling
    from xdist.scheduler.loadscope import LoadScopeScheduling

TOGETHER = ("tests/spark/", "tests/studies/", "tests/interop/differential/")
"""What is dealt out as one: it shares a Spark session, the results of studies, a pair of brokers and their table."""

LONG = (
    *("test_migration.py", "test_stream_kills.py", "test_pipeline_kills.py", "test_stream_agreement.py", "test_cluster.py"),
    *("test_replays.py", "test_mirror.py", "test_cluster_soak.py", "test_engine_folders.py", "test_source_agreement.py"),
    *("test_exactly_once.py", "test_secured_client.py", "test_stream_protocol.py", "test_zookeeper_releases.py"),
    *("test_sink_brokers.py", "test_group_tools.py", "test_real_clients.py", "test_live_folder.py", "test_operators_steps.py"),
    *("test_connector_page.py", "test_metadata_rounds.py", "test_verify.py", "test_kraft_plane.py", "test_kraft_member.py"),
    *("test_java_groups.py", "test_quotas.py", "test_handover.py", "test_import.py", "test_installing.py"),
)
"""Files of `make interop` that take a minute and more, the longest first."""

pytest.register_assert_rewrite("tests.fields")

FSYNC = {"real": os.fsync, "skipped": lambda fd: os.fstat(fd) and None}
"""What `--fsync` says. Skipped, it fails where a sync would, and leaves the disk alone: there are tens of thousands, and nobody
loses power. What is synced, and when, is seen by tests that look at the calls."""

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


def pytest_unconfigure() -> None:
    os.fsync = FSYNC["real"]


def pytest_report_header(config: pytest.Config) -> str:
    return f"os.fsync: {config.getoption('fsync')} (--fsync)"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # All of that folder has the mark.
    if collection_path == shares.INTEROP and config.getoption("markexpr") == shares.WITHOUT_INTEROP:
        return True
    return True if shares.is_shared(config) and shares.is_of_another(collection_path) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    # What is collected stays until the end: the collector of garbage need not look through it again and again.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What is large goes first: at the end it would keep one worker busy while the others have nothing to do.
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.nodeid.startswith(TOGETHER):
        return -1
    return LONG.index(item.path.name) if item.path.name in LONG and item.path.parent == shares.INTEROP else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> EachScheduling | LoadScopeScheduling:
    if shares.is_shared(config):
        return shares.ByShare(config, log)
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)
