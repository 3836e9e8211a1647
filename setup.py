"""Compile the kernels where a C compiler is found; without one the same files run interpreted.

Everything else about the project is said in pyproject.toml.
"""

import os
import runpy
import sys
import zlib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

if os.name == "nt":
    sys.exit("Tidelog runs on Linux and macOS, not on Windows; the Windows Subsystem for Linux (WSL) is a Linux.")

SOURCE = Path("src")
KERNEL = SOURCE / "tidelog/records/kernel"
PRIMITIVES = KERNEL / "primitives"
# What a kernel compares with the files that are there, see build_stamp.py, which says itself which files are shared.
STAMP = runpy.run_path(str(PRIMITIVES / "build_stamp.py"))
SHARED = STAMP["shared_files"](KERNEL)
SHARED_CRC = STAMP["shared_crc"](KERNEL)
# What Cython would put into each kernel goes into one module beside them: half a minute of compiling less.
RUNTIME = KERNEL / "_cython.c"


def module_name(source: Path) -> str:
    """Return the name that the module of a source is imported by."""
    return ".".join(source.relative_to(SOURCE).with_suffix("").parts)


def extension(source: Path) -> Extension:
    """Return the extension module of one kernel, or of what all kernels need of Cython."""
    if source == RUNTIME:
        return Extension(module_name(source), [str(source)], extra_compile_args=["-O3"])
    return Extension(
        module_name(source),
        [str(source)],
        depends=[str(path) for path in SHARED],
        include_dirs=[str(PRIMITIVES)],
        define_macros=[
            ("TIDELOG_SOURCE_CRC", f"{zlib.crc32(source.read_bytes())}u"),
            ("TIDELOG_SHARED_CRC", f"{SHARED_CRC}u"),
        ],
        extra_compile_args=["-O3"],
    )


def kernels() -> list[Path]:
    """Return the sources of all kernels: what is in the rooms of the package, but for what they share."""
    return sorted(path for path in KERNEL.glob("*/*.py") if path.parent != PRIMITIVES and path.name != "__init__.py")


def is_shared_newer() -> bool:
    """Return whether a shared file has changed since C was made of some kernel: Cython does not see that itself (`cimports`)."""
    generated = [path.with_suffix(".c") for path in kernels()]
    made = min((path.stat().st_mtime for path in generated if path.exists()), default=0.0)
    return max(path.stat().st_mtime for path in SHARED) > made


EXTENSIONS = cythonize(
    [extension(source) for source in [RUNTIME, *kernels()]],
    compiler_directives={"language_level": "3"},
    shared_utility_qualified_name=module_name(RUNTIME),
    force=is_shared_newer(),
)
for one in EXTENSIONS:
    one.optional = True  # Not before: cythonize would forget it.

setup(ext_modules=EXTENSIONS, options={"build_ext": {"parallel": os.cpu_count()}})
