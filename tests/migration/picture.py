"""The play as one picture: a row for each step, a bar for each replica of a partition, coloured by message format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tests.migration.play import BROKERS, PARTITIONS, Step

COLOURS = {0: "#9aa5b1", 1: "#2f6db5", 2: "#d9822b"}
TIP = 3
"""What was written last is to be seen, however little it is: a canary's v1."""
LEFT, BAR, GAP, ROW, HEAD = 470, 150, 12, 62, 64


def picture(steps: Sequence[Step]) -> str:
    """Return it as SVG. A bar is as long as the partition was at the end."""
    width = LEFT + PARTITIONS * (BAR + GAP) + 20
    height = HEAD + ROW * len(steps) + 10
    longest = [max(1, *(step.ends[partition] for step in steps)) for partition in range(PARTITIONS)]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="12" y="24" font-size="15">KIP-32\'s migration: message formats on each replica, step by step</text>',
        *(
            f'<rect x="{12 + 90 * at}" y="36" width="12" height="12" fill="{colour}"/>'
            f'<text x="{28 + 90 * at}" y="46">format v{magic}</text>'
            for at, (magic, colour) in enumerate(COLOURS.items())
        ),
        f'<text x="{LEFT - 20}" y="50" fill="#555" text-anchor="end">broker: release, protocol/format</text>',
        *(
            f'<text x="{LEFT + partition * (BAR + GAP)}" y="50" fill="#555">partition {partition}</text>'
            for partition in range(PARTITIONS)
        ),
    ]
    for number, step in enumerate(steps):
        lines += _row(step, HEAD + ROW * number, longest)
    return "\n".join([*lines, "</svg>", ""])


def _row(step: Step, top: int, longest: Sequence[int]) -> Iterator[str]:
    yield f'<text x="12" y="{top + 12}">{escape(step.name)}</text>'
    for at, broker in enumerate(BROKERS):
        y = top + 18 + at * 13
        yield f'<text x="24" y="{y + 9}" font-size="10" fill="#555">{escape(step.brokers[broker])}</text>'
        for partition in range(PARTITIONS):
            scale, x = BAR / longest[partition], LEFT + partition * (BAR + GAP)
            found = step.formats[broker, partition]
            ends = [first for _, first in found[1:]] + [step.ends[partition]]
            for (magic, first), end in zip(found, ends, strict=True):
                size = max(0.5 if end < ends[-1] else TIP, (end - first) * scale)
                yield f'<rect x="{x + first * scale:.1f}" y="{y}" width="{size:.1f}" height="10" fill="{COLOURS[magic]}"/>'
