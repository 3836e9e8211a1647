"""Makes Arrow arrays and scalars of integers from their bytes.

`pa.scalar` and `pa.array` import pandas if it is installed, which takes half a second and 40 MB.
"""

from __future__ import annotations

from array import array

import pyarrow as pa


def int64s(numbers: array[int]) -> pa.Array:
    """Return an array of 64-bit integers (`array("q")`) without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)], 0)


def int64(number: int) -> pa.Scalar:
    """Return a number as a 64-bit Arrow scalar."""
    return int64s(array("q", [number]))[0]
