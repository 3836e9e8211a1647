"""The demo's picture: segments on a time axis, and the records that an exact range finds and a cut by offset loses."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

SHOWN = 12  # segments in the left picture
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
    tide = np.maximum.accumulate(timestamps)  # what the time index stores: the largest timestamp so far
    inside = (timestamps >= start_ms) & (timestamps < end_ms)
    cut = int(np.argmax(timestamps >= end_ms))  # "first offset >= end", where a read by offsets stops
    late = inside & (np.arange(len(offsets)) >= cut)

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK})
    figure, (weeks, day) = plt.subplots(1, 2, figsize=(13, 5.6), gridspec_kw={"width_ratios": [1, 1.25]})

    _draw_segments(weeks, offsets, timestamps, segment_bases, start_ms)
    weeks.axvspan(_days(start_ms), _days(end_ms), color=DAY, lw=0, zorder=0)
    weeks.set_title(f"segments on the time axis ({SHOWN} of {len(segment_bases)})", loc="left")
    weeks.set_xlabel("event time (UTC)")
    weeks.set_ylabel("segment: base offset")
    weeks.xaxis.set_major_locator(mdates.DayLocator(interval=3))
    weeks.xaxis.set_major_formatter(mdates.DateFormatter("%d %b"))

    first, last = int(np.flatnonzero(inside)[0]), int(np.flatnonzero(inside)[-1])
    around = slice(max(0, first - 120), min(len(offsets), last + 120))
    day.axvspan(_days(start_ms), _days(end_ms), color=DAY, lw=0, zorder=0)
    day.plot(_days(tide[around]), offsets[around], color=INK, lw=1, label="time index: largest timestamp so far")
    other = ~inside[around]
    day.scatter(_days(timestamps[around][other]), offsets[around][other], s=3, color="#b8c4ce", label="outside the range")
    early = (inside & ~late)[around]
    day.scatter(
        _days(timestamps[around][early]),
        offsets[around][early],
        s=4,
        color=WATER,
        label=f"{int((inside & ~late).sum())} before the cut",
    )
    day.scatter(
        _days(timestamps[around][late[around]]),
        offsets[around][late[around]],
        s=9,
        color=LATE,
        label=f"{int(late.sum())} late records that a cut at the first offset ≥ end loses",
    )
    day.axhline(offsets[cut], color=LATE, lw=0.8, ls="--")
    day.set_xlim(_days(start_ms - 8 * 3_600_000), _days(end_ms + 8 * 3_600_000))
    day.set_title(f"an exact range: {_text(start_ms)} to {_text(end_ms)}, {int(inside.sum())} records", loc="left")
    day.set_xlabel("event time (UTC)")
    day.xaxis.set_major_locator(mdates.HourLocator(byhour=(0, 6, 12, 18)))
    day.xaxis.set_major_formatter(mdates.DateFormatter("%d %b\n%H:%M"))
    day.legend(loc="upper left", frameon=False, fontsize=8)

    for axes in (weeks, day):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120)
    plt.close(figure)


def _draw_segments(axes: plt.Axes, offsets: np.ndarray, timestamps: np.ndarray, bases: list[int], around_ms: int) -> None:
    """One bar a segment, from its earliest to its latest event; bars overlap where events were late."""
    ends = [*bases[1:], int(offsets[-1]) + 1]
    rows = [slice(*np.searchsorted(offsets, [base, end])) for base, end in zip(bases, ends, strict=True)]
    lows = [timestamps[r].min() for r in rows]
    highs = [timestamps[r].max() for r in rows]
    hit = next(i for i, high in enumerate(highs) if high >= around_ms)
    first = max(0, min(hit - SHOWN // 2, len(bases) - SHOWN))
    for place, number in enumerate(range(first, min(first + SHOWN, len(bases)))):
        low, high = _days(lows[number]), _days(highs[number])
        axes.barh(place, high - low, left=low, height=0.62, color=WATER, alpha=0.75 if number == hit else 0.45, lw=0)
        # the largest timestamp so far: that of the last index entry
        axes.plot([high, high], [place - 0.42, place + 0.42], color=INK, lw=1.6)
        if number + 1 < len(bases) and lows[number + 1] < highs[number]:
            late = _days(lows[number + 1])
            axes.barh(place, high - late, left=late, height=0.62, color=LATE, alpha=0.8, lw=0)
    shown = range(first, min(first + SHOWN, len(bases)))
    axes.set_yticks(range(len(shown)), [f"{bases[n]:,}" for n in shown])
    axes.set_xlim(_days(lows[shown[0]]) - 0.3, _days(highs[shown[-1]]) + 0.3)
    tide = Line2D([], [], color=INK, lw=1.6, label="largest timestamp (its last time index entry)")
    overlap = Patch(color=LATE, alpha=0.8, label="overlaps the next segment: late events")
    axes.legend(handles=[tide, overlap], loc="upper left", frameon=False, fontsize=8)


def _days(milliseconds: np.ndarray | int) -> np.ndarray | float:
    return milliseconds / 86_400_000  # matplotlib's dates count days since the epoch


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%d %b %H:%M")
