"""The demo's picture: segments on a time axis, and what an exact range finds that a cut by offset loses."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np

INK, WATER, LATE, DAY = "#1f2d3d", "#2a7fb8", "#d1495b", "#f3e9d2"


def draw(
    offsets: np.ndarray,
    timestamps: np.ndarray,
    segment_bases: list[int],
    start_ms: int,
    end_ms: int,
    output: Path,
) -> None:
    """Draw one partition.

    `offsets` and `timestamps` (epoch ms) are the partition's records in offset order, `segment_bases` the base offset
    of each segment, [`start_ms`, `end_ms`) the range that was read.
    """
    tide = np.maximum.accumulate(timestamps)  # what the time index knows: the largest timestamp so far
    inside = (timestamps >= start_ms) & (timestamps < end_ms)
    cut = int(np.argmax(timestamps >= end_ms))  # "first offset >= end", where others stop
    late = inside & (np.arange(len(offsets)) >= cut)

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK})
    figure, (year, day) = plt.subplots(1, 2, figsize=(12.5, 5.4), gridspec_kw={"width_ratios": [1, 1.25]})

    _draw_segments(year, offsets, timestamps, segment_bases)
    year.axvspan(_days(start_ms), _days(end_ms), color=LATE, alpha=0.35, lw=0)
    year.set_title(f"{len(segment_bases)} segments of one partition, from first to last event", loc="left")
    year.set_xlabel("event time (UTC)")
    year.set_ylabel("offset")
    year.xaxis.set_major_formatter(mdates.DateFormatter("%b"))

    first, last = int(np.flatnonzero(inside)[0]), int(np.flatnonzero(inside)[-1])
    around = slice(max(0, first - 120), min(len(offsets), last + 120))
    day.axvspan(_days(start_ms), _days(end_ms), color=DAY, lw=0, zorder=0)
    day.plot(_days(tide[around]), offsets[around], color=INK, lw=1, label="time index: largest timestamp so far")
    other = ~inside[around]
    day.scatter(_days(timestamps[around][other]), offsets[around][other], s=3, color="#b8c4ce", label="outside the range")
    early = (inside & ~late)[around]
    day.scatter(_days(timestamps[around][early]), offsets[around][early], s=4, color=WATER, label=f"{int((inside & ~late).sum())} before the cut")
    day.scatter(
        _days(timestamps[around][late[around]]),
        offsets[around][late[around]],
        s=9,
        color=LATE,
        label=f"{int(late.sum())} late ones that a cut at the first offset ≥ end loses",
    )
    day.axhline(offsets[cut], color=LATE, lw=0.8, ls="--")
    day.set_xlim(_days(start_ms - 8 * 3_600_000), _days(end_ms + 8 * 3_600_000))
    day.set_title(f"an exact range: {_text(start_ms)} to {_text(end_ms)}, {int(inside.sum())} records", loc="left")
    day.set_xlabel("event time (UTC)")
    day.xaxis.set_major_formatter(mdates.DateFormatter("%d %b\n%H:%M"))
    day.legend(loc="upper left", frameon=False, fontsize=8)

    for axes in (year, day):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120)
    plt.close(figure)


def _draw_segments(axes: plt.Axes, offsets: np.ndarray, timestamps: np.ndarray, bases: list[int]) -> None:
    """One box a segment: its records' time span by its offset span; boxes overlap in time where events were late."""
    ends = [*bases[1:], int(offsets[-1]) + 1]
    for number, (base, end) in enumerate(zip(bases, ends, strict=True)):
        rows = slice(*np.searchsorted(offsets, [base, end]))
        if rows.start == rows.stop:
            continue
        low, high = _days(timestamps[rows].min()), _days(timestamps[rows].max())
        axes.barh((base + end) / 2, high - low, height=end - base, left=low, color=WATER, alpha=0.35 if number % 2 else 0.6, lw=0)
    axes.set_xlim(_days(timestamps.min()), _days(timestamps.max()))
    axes.set_ylim(0, offsets[-1])


def _days(milliseconds: np.ndarray | int) -> np.ndarray | float:
    return milliseconds / 86_400_000  # matplotlib's dates count days since the epoch


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%d %b %H:%M")
