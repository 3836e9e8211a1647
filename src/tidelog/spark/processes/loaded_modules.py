"""Keeps loaded modules out of garbage collections in the Python processes that Spark starts.

PySpark collects garbage after each task and each planning call of a process. With PySpark, pyarrow and Tidelog loaded, such a
collection takes about 20 ms of processor time, more than reading a few megabytes takes: it visits the objects of all modules,
which stay anyway. Importing modules also triggers collections, which visit the same objects. Objects that `gc.freeze` has set
aside are not visited.
"""

from __future__ import annotations

import gc
import sys

_SPARKS = "pyspark."
"""The modules with which Spark starts a Python process, e.g. `pyspark.daemon` and `pyspark.worker`."""
_OURS = "tidelog.spark.quiet_daemon"

_counts: set[int] = set()
"""How many modules were loaded, each time that this process set objects aside."""


def set_modules_aside() -> None:
    """Set aside all objects of this process, unless that was done with this number of loaded modules. Do nothing in a process
    that Spark did not start, such as a user's program.

    Garbage is collected first, since objects that are set aside are freed only by their reference counts.
    """
    if len(sys.modules) in _counts or not is_sparks():
        return
    gc.collect()
    gc.freeze()
    _counts.add(len(sys.modules))


def is_sparks() -> bool:
    """Return whether Spark started this process."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and (spec.name == _OURS or spec.name.startswith(_SPARKS))
