"""A column of byte strings in Arrow's binary layout, for kernels to read."""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.tidelog.records.kernel.primitives import buffers, build_stamp
else:
    from tidelog.records.kernel.primitives import buffers, build_stamp

build_stamp.check(__name__, __file__)


class BinaryColumn:
    """A column of byte strings to encode, in Arrow's binary layout: int32 offsets, data, validity bitmap or None.

    `first` is the index of the column's first entry in the buffers (the offset of a sliced Arrow array), and `length` the number
    of entries. Raises ValueError if the offsets do not fit the data, so that later reads stay inside the data.
    """

    def __init__(
        self,
        offsets: object,
        data: object,
        validity: object,
        first: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
    ) -> None:
        offsets_view: cython.const[cython.int][::1] = memoryview(offsets).cast("B").cast("i")
        data_view: cython.const[cython.uchar][::1] = memoryview(data).cast("B")
        validity_view: cython.const[cython.uchar][::1] = memoryview(b"" if validity is None else validity).cast("B")
        if first < 0 or length < 0 or len(offsets_view) < first + length + 1:
            raise ValueError(f"there are {len(offsets_view)} offsets for {first} + {length} entries")
        if validity is not None and len(validity_view) * 8 < first + length:
            raise ValueError(f"the validity bitmap has {len(validity_view)} bytes for {first} + {length} entries")
        previous: cython.longlong = 0
        i: cython.Py_ssize_t
        for i in range(first, first + length + 1):
            if offsets_view[i] < previous:
                raise ValueError(f"offset {offsets_view[i]} of entry {i} is below the previous offset")
            previous = offsets_view[i]
        if previous > len(data_view):
            raise ValueError(f"offset {previous} is beyond the {len(data_view)} bytes of data")
        self.length = length
        self.first = first
        self.has_validity = validity is not None
        self.owners = (offsets, data, validity)
        self.offsets = buffers.input_ints(offsets_view)
        self.data = buffers.input_bytes(data_view)
        self.validity = buffers.input_bytes(validity_view)
