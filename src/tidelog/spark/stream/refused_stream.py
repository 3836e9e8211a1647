"""A stream reader that raises an error with the reason why streams are not supported. It uses only features of old PySpark
versions, so it works with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError, UnsupportedVersionError
from tidelog.extras import imported_from
from tidelog.spark.processes.short_errors import short_errors

with imported_from("spark", "PySpark"):
    import pyspark
    from pyspark.sql.datasource import DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ModuleNotFoundError:  # before 4.2
        SupportsTriggerAvailableNow = None

_BASES: tuple[type, ...] = (
    (DataSourceStreamReader,) if SupportsTriggerAvailableNow is None else (DataSourceStreamReader, SupportsTriggerAvailableNow)
)


def too_old() -> TidelogError | None:
    """Return the error for a Spark whose Python sources cannot limit a batch; None if streams are supported."""
    if SupportsTriggerAvailableNow is not None:
        return None
    return UnsupportedVersionError(
        "streams need PySpark 4.2 or newer: in older releases Python sources cannot limit a batch (spark.read and write do work)",
        found=f"PySpark {pyspark.__version__}",
    )


class _Refusing:
    """A reader of which every method raises an error. If the error were raised before a reader exists, PySpark would raise an
    UnboundLocalError after it, and users would see that error last.
    """

    def __init__(self, error: TidelogError) -> None:
        self._error = error

    @short_errors
    def _refuse(self, *_: Any) -> Any:
        raise self._error

    _whatever: Any = _refuse
    prepareForTriggerAvailableNow = getDefaultReadLimit = _whatever  # noqa: N815 -- Spark's names
    initialOffset = latestOffset = partitions = read = _whatever  # noqa: N815


_Refused: Any = type("_Refused", (_Refusing, *_BASES), {"__module__": __name__})


def refused_stream(error: TidelogError) -> DataSourceStreamReader:
    """Return a reader that raises `error` when it is first used."""
    reader: DataSourceStreamReader = _Refused(error)
    return reader
