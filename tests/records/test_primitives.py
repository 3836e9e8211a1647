"""What the kernels share stands twice: in C for those that are compiled, in Python for those that are not. Both say the same.

That the functions do the same is what every test of this folder tries that runs over both kinds of kernels.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from tests.records.kernels import FOLDER, PACKAGE

PRIMITIVES = FOLDER / "primitives"
HEADERS = sorted(path.stem for path in PRIMITIVES.glob("*.pxd") if path.stem not in ("build_stamp", "sending", "send_queue"))
"""Those of functions. Threads have classes as their twins, compared by test_senders.py and test_send_queue.py."""
OF_C = {
    "(1LL << 62)": 2**62,
    "0x7fffffffLL": 2**31 - 1,
    "0x7fffffffffffffffLL": 2**63 - 1,
    "(-TIDELOG_MAX_INT64 - 1)": -(2**63),
}


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough."""


def constants(header: str) -> dict[str, int]:
    """Return the constants that a .pxd defines."""
    found = {name: int(value, 0) for name, value in re.findall(r"^    ([A-Z]\w*) = (\S+)$", header, re.MULTILINE)}
    defined = dict(re.findall(r"#define (\w+) (.*)", header))
    for name, there in re.findall(r'const long long (\w+) "(\w+)"', header):
        found[name] = OF_C[defined[there]]
    return found


@pytest.mark.parametrize("name", HEADERS)
def test_the_same_names_and_numbers(name: str) -> None:
    module = importlib.import_module(f"{PACKAGE}.primitives.{name}")
    assert module.__file__ is not None and Path(module.__file__).suffix == ".py"
    header = (PRIMITIVES / f"{name}.pxd").read_text()
    numbers = {key: value for key, value in vars(module).items() if key.isupper() and isinstance(value, int)}
    assert constants(header) == numbers
    functions = dict(re.findall(r"^cdef inline .*?(\w+)\(\s*([^)]*)\)", header, re.MULTILINE))
    here = {
        key: value for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    assert functions.keys() == here.keys()
    for key, arguments in functions.items():
        if name != "buffers" or len(arguments.split(",")) > 1:
            assert re.findall(r"(\w+)(?:,|$)", arguments.strip()) == list(inspect.signature(here[key]).parameters), key


def test_something_is_compared() -> None:
    assert HEADERS == ["buffers", "crc", "faults", "layout", "record_headers", "varints"]
    assert constants("cdef enum:\n    A = 0x10\n    B = -2\n") == {"A": 16, "B": -2}
