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
from tidelog.records import kernel as kernel_package
from tidelog.records.kernel.primitives.build_stamp import shared_crc

PROJECT = Path(__file__).parents[2]
KERNEL = Path(tidelog.records.__file__).parent / "kernel"


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
    assert all(extension.optional for extension in extensions.values())
    runtime = extensions.pop("tidelog.records.kernel._cython")
    assert runtime.sources == ["src/tidelog/records/kernel/_cython.c"]
    homes = {f"tidelog.records.kernel.{home}" for home in kernel_package._HOMES if not home.startswith("primitives.")}
    assert extensions.keys() == homes | {"tidelog.records.kernel.compaction.record_pass"}
    shared = sorted(str(path.relative_to(PROJECT)) for kind in ("pxd", "h") for path in KERNEL.rglob(f"*.{kind}"))
    for extension in extensions.values():
        assert extension.depends == shared and "src/tidelog/records/kernel/primitives/checksums.h" in shared
        stamps = {
            "TIDELOG_SOURCE_CRC": zlib.crc32(Path(extension.sources[0]).read_bytes()),
            "TIDELOG_SHARED_CRC": shared_crc(KERNEL),
        }
        assert dict(extension.define_macros) == {name: f"{crc}u" for name, crc in stamps.items()}


def forgetful_cythonize(extensions: list[setuptools.Extension], **_: Any) -> list[setuptools.Extension]:
    """Drop what Cython drops."""
    for extension in extensions:
        extension.optional = False
    return extensions


def test_sources_are_packaged() -> None:
    """The source distribution has what the kernels are compiled with; an installed package, what describes them."""
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["tidelog"]
    (sources,) = re.findall("^recursive-include src (.*)$", (PROJECT / "MANIFEST.in").read_text(), re.MULTILINE)
    for path in KERNEL.rglob("*"):
        if path.suffix in (".h", ".pxd", ".pyi"):
            assert any(fnmatch(path.name, pattern) for pattern in sources.split()), path.name
        if path.suffix == ".pyi":
            assert any(fnmatch(f"records/kernel/{path.name}", pattern.replace("**/", "*")) for pattern in wheel), path.name
