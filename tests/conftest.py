"""How the tests are dealt out to workers: file by file, but all that need Spark to one of them, first, and the studies too.

A Spark session takes longer to start than most tests that use it, and a second one beside it takes memory and processor of
the first. The studies are run once for all that look at them. `make test` names the number of workers; without pytest-xdist, or
without `-n`, nothing here matters but the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler.loadscope import LoadScopeScheduling

SPARK = "tests/spark/"
TOGETHER = (SPARK, "tests/studies/")
"""What is dealt out as one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What is large goes first: at the end it would keep one worker busy while the others have nothing to do.
    items.sort(key=lambda item: not item.nodeid.startswith(TOGETHER))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)
