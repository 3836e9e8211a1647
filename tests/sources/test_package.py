"""The front door: `tidelog.scan` is a function and stays one; `import tidelog` is cheap."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import tidelog
import tidelog.sources

HEAVY = ("numpy", "pandas", "pyarrow", "pyspark", "asyncio")


def test_scan_stays_a_function_whatever_is_imported() -> None:
    for module in pkgutil.iter_modules(tidelog.sources.__path__, "tidelog.sources."):
        import_module(module.name)
    assert callable(tidelog.scan)
    assert tidelog.scan.__module__ == "tidelog.sources.stream"


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, tidelog; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in tidelog.__all__:
        assert getattr(tidelog, name) is not None
    assert set(tidelog.__all__) <= set(dir(tidelog))
    with pytest.raises(AttributeError, match="no attribute 'scna'"):
        _ = tidelog.scna  # type: ignore[attr-defined]
