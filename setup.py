"""Compile the column kernel where a C compiler is found; without one the same file runs interpreted.

Everything else about the project is said in pyproject.toml.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tidelog.records.kernel",
                ["src/tidelog/records/kernel.py"],
                extra_compile_args=["-O3"],
                optional=True,
            )
        ],
        compiler_directives={"language_level": "3"},
    )
)
