"""`--offset`: a first offset or a range of offsets in each partition.

| text | offsets |
|---|---|
| `100` | from 100 on |
| `100:200`, `:200` | 100 to 199; up to 199 |
| `-5` | the last five |
| `earliest`, `beginning` | from the log's start on |
| `latest`, `end` | from the log's end on, for `--follow` |

The end of a log depends on the isolation level. The number of offsets is not the number of records: transaction markers have
offsets, and compaction leaves gaps. `--tail` counts records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.model import MAX_OFFSET, TopicPartition
from tidelog.sources.source import Ends

ACCEPTED = "100, 100:200, -5 (the last five), earliest, latest"

_RANGE = re.compile(r"(?P<first>\d{1,19})?:(?P<end>\d{1,19})?|(?P<last>-\d{1,19})|(?P<from>\d{1,19})", re.ASCII)
_WORDS = {"earliest": 0, "beginning": 0, "latest": None, "end": None}


class OffsetOption(NamedTuple):
    """Offsets `[first, end)`, or the `last` offsets before the end if it is not None."""

    first: int = 0
    end: int | None = None
    last: int | None = None

    def ranges(self, ends: Mapping[TopicPartition, Ends]) -> dict[int, tuple[int, int]]:
        """Return the range for each partition, limited to the offsets in its log."""
        found = {}
        for key, log in ends.items():
            end = log.end_offset if self.end is None else min(self.end, log.end_offset)
            first = self.first if self.last is None else end - self.last
            first = min(max(first, log.log_start_offset), max(end, log.log_start_offset))
            found[key.partition] = (first, max(first, end))
        return found

    def notices(self, ends: Mapping[TopicPartition, Ends], *, is_followed: bool = False) -> list[str]:
        """Return a sentence about logs that end at or before the first offset, and one about logs that start after it. If records
        are followed, a log may end at the first offset.
        """
        if self.last is not None or not self.first:
            return []
        short, late = [], []
        for (topic, partition), log in ends.items():
            if self.first >= log.end_offset + is_followed:
                short.append(f"{topic}-{partition}, which ends at {log.end_offset}")
            elif self.first < log.log_start_offset:
                late.append(f"{topic}-{partition}, which starts at {log.log_start_offset}")
        return [
            *([f"--offset {self.first} finds nothing in {some_of(short)}"] if short else []),
            *([f"--offset {self.first} is before the start of {some_of(late)}"] if late else []),
        ]


def some_of(texts: Sequence[str], most: int = 3) -> str:
    """Return the first texts, and the number of the others."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f", and {more:,} more partitions" if more > 0 else "")


def parse_offset(text: str) -> OffsetOption:
    """Parse an offset or a range, as in the table above. Raises InvalidArgumentError."""
    word = text.strip().lower()
    if word in _WORDS:
        return OffsetOption() if _WORDS[word] == 0 else OffsetOption(last=0)
    match = _RANGE.fullmatch(word)
    if match is None:
        raise InvalidArgumentError("--offset is not an offset or a range of offsets", found=repr(text), expected=ACCEPTED)
    numbers = {name: int(number) for name, number in match.groupdict().items() if number is not None}
    if any(abs(number) > MAX_OFFSET for number in numbers.values()):
        raise InvalidArgumentError("--offset is too large", found=repr(text), expected=f"at most {MAX_OFFSET}")
    if "last" in numbers:
        return OffsetOption(last=-numbers["last"])
    if "from" in numbers:
        return OffsetOption(numbers["from"])
    first, end = numbers.get("first", 0), numbers.get("end")
    if end is not None and end < first:
        raise InvalidArgumentError(f"the offsets end at {end}, before their start {first}", found=repr(text))
    return OffsetOption(first, end)
