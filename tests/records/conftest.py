"""One suite, two kernels: every test here runs over the compiled kernel, where there is one, and over the interpreted source."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

import tidelog.records
from tidelog.records import builder, columns, conversion, message_set, records, scanner, validation
from tidelog.records import kernel as installed_kernel

SOURCE = Path(tidelog.records.__file__).with_name("kernel.py")


def load_interpreted() -> ModuleType:
    """Load kernel.py as plain Python, whatever is installed beside it."""
    loader = SourceFileLoader("tidelog.records.interpreted_kernel", str(SOURCE))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


INTERPRETED = load_interpreted()
KERNELS = {"interpreted": INTERPRETED}
if installed_kernel.COMPILED:
    KERNELS["compiled"] = installed_kernel


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
