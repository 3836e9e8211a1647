"""Each study is run once, at the smallest scale at which its effects can be seen, for all tests that look at it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from studies.case import Measurements, run_all
from studies.catalogue import study

SCALES = {"which-index": 0.02, "options": 0.02, "policies": 0.02, "use-cases": 0.01}


@pytest.fixture(scope="session")
def measured_study(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Measurements]:
    @cache
    def run(name: str) -> Measurements:
        return run_all(study(name), SCALES[name], tmp_path_factory.mktemp(name))

    return run
