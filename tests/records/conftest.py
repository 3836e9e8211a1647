"""One suite, two kernels: every test here runs over the compiled kernel, where there is one, and over the interpreted source."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.records.kernels import KERNELS
from tidelog.records import builder, columns, conversion, message_set, records, scanner, validation


@pytest.fixture(scope="module", autouse=True, params=list(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Put one of the kernels in place for all of `tidelog.records`."""
    chosen = KERNELS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        for module in (builder, columns, conversion, message_set, records, scanner, validation):
            patch.setattr(module, "kernel", chosen)
        # Rows that are kept for look-ups are the kernel's own.
        patch.setattr(records, "_one_row", records._OneRow())
        yield chosen
