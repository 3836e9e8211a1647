"""How the tests are dealt out to two workers: file by file, and all that need Spark to one of them, first.

A Spark session takes longer to start than most tests that use it, and a second one beside it takes memory and processor of
the first. `make test` names the number of workers; without pytest-xdist, or without `-n`, nothing here matters but the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK = "tests/spark/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(SPARK))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False
    return ByFile(config, log)
