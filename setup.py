"""Compile the kernels where a C compiler is found; without one the same files run interpreted.

Everything else about the project is said in pyproject.toml.
"""

import os
import sys
import zlib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

if os.name == "nt":
    sys.exit("Tidelog runs on Linux and macOS, not on Windows; the Windows Subsystem for Linux (WSL) is a Linux.")

RECORDS = Path("src/tidelog/records")


def extension(source: Path) -> Extension:
    """Return the extension module of one kernel."""
    return Extension(
        f"tidelog.records.{source.stem}",
        [str(source)],
        depends=[str(header) for header in RECORDS.glob("*.h")],
        include_dirs=[str(RECORDS)],
        # What the kernel compares with the source beside it, see tidelog/records/build_stamp.py.
        define_macros=[("TIDELOG_SOURCE_CRC", f"{zlib.crc32(source.read_bytes())}u")],
        extra_compile_args=["-O3"],
    )


KERNELS = cythonize(
    [extension(source) for source in sorted(RECORDS.glob("*kernel.py"))], compiler_directives={"language_level": "3"}
)
for kernel in KERNELS:
    kernel.optional = True  # Not before: cythonize would forget it.

setup(ext_modules=KERNELS, options={"build_ext": {"parallel": os.cpu_count()}})
