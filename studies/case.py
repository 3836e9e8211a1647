"""What a study is made of: cases that can run anywhere, and what they measured.

| | |
|---|---|
| `Case` | a name and parameters, all of them printable: the same case measures the same anywhere |
| `Measurement` | one number or word: of which part, of what (a *subject*: an index, an option, a rule), under which condition |

Measurements are rows of one table, whatever was measured, so that a study's result is one DataFrame. Presentation (`Chapter`)
reads them back with `Measurements`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from studies.chapter import Chapter
from tidelog.errors import InvalidArgumentError, NotFoundError

Parameter = int | float | str | bool


@dataclass(frozen=True)
class Case:
    """One piece of a study."""

    part: str
    """Which part of the study: the name of a function's worth of work."""
    name: str
    """Which of the part's cases."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Everything else that the outcome depends on, the seed included."""

    def __str__(self) -> str:
        return f"{self.part}/{self.name}"


class Measurement(NamedTuple):
    """One thing that was found. `value` for what is counted or measured, in `unit`; `text` for what is said in words."""

    part: str
    case: str
    subject: str
    """Of what: "time index", "option 1", "first message's timestamp"."""
    metric: str
    """What: "bytes on disk", "deleted too early"."""
    value: float | None = None
    unit: str = ""
    text: str | None = None


SCHEMA = "study string, part string, `case` string, subject string, metric string, value double, unit string, text string"
"""The columns of measurements as a DataFrame, in Spark's notation: the study's name, and a `Measurement`."""


class Study(Protocol):
    """A module with these names is a study (`studies.catalogue` lists them)."""

    NAME: str
    """As in `python -m studies NAME`."""
    TITLE: str

    def cases(self, scale: float) -> list[Case]:
        """Return the cases; `scale` 1 is the report's size, tests take less."""

    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
        """Measure one case, in any process; `work_dir` is an empty folder that is removed afterwards."""

    def present(self, measurements: Measurements) -> Chapter:
        """Say what came out of all cases."""


class Measurements:
    """What was measured, to be looked up."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self._all = list(measurements)
        self._by_key: dict[tuple[str, str, str, str], Measurement] = {}
        for one in self._all:
            if self._by_key.setdefault(one[:4], one) is not one:
                raise InvalidArgumentError(f"measured twice: {'/'.join(one[:4])}")

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def get(self, part: str, case: str, subject: str, metric: str) -> Measurement | None:
        """Return what was found, None if nothing was."""
        return self._by_key.get((part, case, subject, metric))

    def value(self, part: str, case: str, subject: str, metric: str) -> float:
        """Return a number that was measured. Raises NotFoundError where there is none."""
        one = self.get(part, case, subject, metric)
        if one is None or one.value is None:
            raise NotFoundError(f"not measured: {part}/{case}/{subject}/{metric}")
        return one.value

    def text(self, part: str, case: str, subject: str, metric: str) -> str:
        """Return what was said. Raises NotFoundError where nothing was."""
        one = self.get(part, case, subject, metric)
        if one is None or one.text is None:
            raise NotFoundError(f"not measured: {part}/{case}/{subject}/{metric}")
        return one.text

    def cases(self, part: str) -> list[str]:
        """Return the cases of a part, in the order in which they were measured."""
        return list(dict.fromkeys(one.case for one in self._all if one.part == part))

    def subjects(self, part: str, case: str | None = None) -> list[str]:
        """Return what was looked at in a part, in the order in which it was measured."""
        return list(dict.fromkeys(one.subject for one in self._all if one.part == part and case in (None, one.case)))


def run_all(study: Study, scale: float, work_dir: Path) -> Measurements:
    """Measure all cases one after the other, in this process, as tests do; `studies.job` does the same in parallel."""
    found: list[Measurement] = []
    for number, case in enumerate(study.cases(scale)):
        folder = work_dir / str(number)
        folder.mkdir()
        found += study.measure(case, folder)
    return Measurements(found)


def one_of(names: Sequence[str], name: str, what: str) -> str:
    """Return `name` if it is one of `names`. Raises InvalidArgumentError."""
    if name not in names:
        raise InvalidArgumentError(f"no such {what}", found=name, expected=f"one of {', '.join(names)}")
    return name
