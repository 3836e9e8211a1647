"""Options shared by `tidelog index` and the index jobs."""

from __future__ import annotations

import click

from tidelog.cli.local_path import LocalPath
from tidelog.config import INT32_MAX

interval_option = click.option(
    "--interval",
    "interval_bytes",
    type=click.IntRange(0, INT32_MAX),
    metavar="BYTES",
    help="index.interval.bytes of the topics. [default: inferred from the indexes]",
)
out_option = click.option(
    "--out", "out_dir", metavar="DIR", type=LocalPath(), help="Write the files under this folder; the data folder is only read."
)
time_maps_option = click.option(
    "--time-map/--no-time-map", "time_maps", default=True, show_default=True, help="Also build time maps."
)
jobs_option = click.option(
    "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Segments processed in parallel. [default: one per processor]"
)
time_map_dir_option = click.option(
    "--time-map-dir", metavar="DIR", type=LocalPath(), help="A folder of time maps to verify in addition to those in DIR."
)
