"""How the kernels are built: all of them, none of them required, with what they are built from in the package."""

from __future__ import annotations

import re
import runpy
import tomllib
import zlib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import Cython.Build
import pytest
import setuptools

import tidelog.records

PROJECT = Path(__file__).parents[2]
RECORDS = Path(tidelog.records.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    """One run is enough."""


def test_kernels_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a C compiler the install goes on, and the kernels run interpreted."""
    found: dict[str, Any] = {}
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(setuptools, "setup", found.update)
    monkeypatch.setattr(Cython.Build, "cythonize", forgetful_cythonize)
    runpy.run_path("setup.py")
    extensions = {extension.name: extension for extension in found["ext_modules"]}
    assert {"tidelog.records.kernel", "tidelog.records.batch_kernel"} <= extensions.keys()
    for extension in extensions.values():
        assert extension.optional
        assert extension.depends == ["src/tidelog/records/checksums.h"]
        ((name, value),) = extension.define_macros
        assert (name, value) == ("TIDELOG_SOURCE_CRC", f"{zlib.crc32(Path(extension.sources[0]).read_bytes())}u")


def forgetful_cythonize(extensions: list[setuptools.Extension], **_: Any) -> list[setuptools.Extension]:
    """Drop what Cython drops."""
    for extension in extensions:
        extension.optional = False
    return extensions


def test_sources_are_packaged() -> None:
    """The source distribution has what the kernels are compiled with; an installed package, what describes them."""
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["tidelog"]
    (sources,) = re.findall("^recursive-include src (.*)$", (PROJECT / "MANIFEST.in").read_text(), re.MULTILINE)
    for path in RECORDS.iterdir():
        if path.suffix in (".h", ".pxd", ".pyi"):
            assert any(fnmatch(path.name, pattern) for pattern in sources.split()), path.name
        if path.suffix == ".pyi":
            assert any(fnmatch(f"records/{path.name}", pattern.replace("**/", "*")) for pattern in wheel), path.name
