"""Provides a `SPARK_HOME` for local sessions without PySpark's zip archive.

Spark starts a Python process for `load()`, for each plan, each stream's source and the workers. Each process imports PySpark from
`python/lib/pyspark.zip`, which has no compiled modules. That takes 1.8 s of processor time per process instead of 0.5 s, measured
with PySpark 4.3. Without the archive Python uses the installed PySpark, which is the same.

| `SPARK_HOME` | master | Spark gets |
|---|---|---|
| not set | local | a folder of links to PySpark's files, without `python` |
| set, or PySpark is not installed as a package | any | the usual folder |
| any | a cluster's | the usual folder: executors look for PySpark under the driver's path |

This module does not import PySpark; it only looks up its location.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.spark.java import private_cache_folder

_SHOWN = ("bin", "jars", "sbin", "data", "conf", "licenses")
_NEEDED = ("bin", "jars")

_log = logging.getLogger("tidelog.spark")


@contextmanager
def light_spark_home(master: str | None) -> Iterator[None]:
    """Let a JVM that starts within the context use a `SPARK_HOME` without the archive, if Spark runs on this machine."""
    if "SPARK_HOME" in os.environ or not (master or "local").startswith("local") or (master or "").startswith("local-cluster"):
        yield
        return
    try:
        home = _make()
    except (OSError, StorageError) as error:
        _log.info("using the Spark bundled with PySpark: %s", error)
        home = None
    if home is None:
        yield
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("SPARK_HOME", None)


def _make() -> Path | None:
    """Return the folder of links, creating it if it does not exist. Return None if PySpark is not installed as a package."""
    import pyspark

    installed = Path(pyspark.__file__).parent.resolve()
    if not all((installed / name).is_dir() for name in _NEEDED):
        return None
    names = [name for name in _SHOWN if (installed / name).is_dir()]
    mark = hashlib.sha256("\0".join([str(installed), *names]).encode()).hexdigest()[:16]
    home = private_cache_folder() / f"spark-{mark}"
    if not all((home / name).is_dir() for name in _NEEDED):
        # Create the folder under a temporary name and rename it: any number of processes may do this concurrently.
        fresh = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
        try:
            for name in names:
                (fresh / name).symlink_to(installed / name)
            fresh.rename(home)
        except OSError:
            if not all((home / name).is_dir() for name in _NEEDED):
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return home
