"""The parts of a study: cases that can run anywhere, and their measurements.

| | |
|---|---|
| `Case` | a name and printable parameters: the same case gives the same results on any machine |
| `Measurement` | one number or word, with its part, its *subject* (an index, an option, a rule) and its case |

All measurements are rows of the same table, so that a study's result is one DataFrame. The presentation (`Chapter`) reads them
back with `Measurements`.
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
    """One independent unit of a study's measurements."""

    part: str
    """The part of the study: the name of one group of cases."""
    name: str
    """The name of the case within its part."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """All other parameters that affect the result, including the seed."""

    def __str__(self) -> str:
        return f"{self.part}/{self.name}"


class Measurement(NamedTuple):
    """One result: `value` in `unit` for a count or a measured number, `text` for a word."""

    part: str
    case: str
    subject: str
    """The thing measured: "time index", "option 1", "first message's timestamp"."""
    metric: str
    """The quantity measured: "bytes on disk", "deleted too early"."""
    value: float | None = None
    unit: str = ""
    text: str | None = None


SCHEMA = "study string, part string, `case` string, subject string, metric string, value double, unit string, text string"
"""The columns of the DataFrame in Spark's notation: the study's name, then a `Measurement`."""


class Study(Protocol):
    """The interface of a study, which a module implements with these names (`studies.catalogue` lists them)."""

    NAME: str
    """The name for `python -m studies NAME`."""
    TITLE: str

    def cases(self, scale: float) -> list[Case]:
        """Return the cases. `scale` 1 is the report's size; tests use less."""

    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
        """Measure one case in any process. `work_dir` is an empty folder that is removed afterwards."""

    def present(self, measurements: Measurements) -> Chapter:
        """Return the chapter that presents the results of all cases."""


class Measurements:
    """All measurements of a study, for look-ups."""

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
        """Return a measurement, None if there is none."""
        return self._by_key.get((part, case, subject, metric))

    def value(self, part: str, case: str, subject: str, metric: str) -> float:
        """Return a measured number. Raise NotFoundError if there is none."""
        one = self.get(part, case, subject, metric)
        if one is None or one.value is None:
            raise NotFoundError(f"not measured: {part}/{case}/{subject}/{metric}")
        return one.value

    def text(self, part: str, case: str, subject: str, metric: str) -> str:
        """Return a measured text. Raise NotFoundError if there is none."""
        one = self.get(part, case, subject, metric)
        if one is None or one.text is None:
            raise NotFoundError(f"not measured: {part}/{case}/{subject}/{metric}")
        return one.text

    def cases(self, part: str) -> list[str]:
        """Return the cases of a part, in the order of measurement."""
        return list(dict.fromkeys(one.case for one in self._all if one.part == part))

    def subjects(self, part: str, case: str | None = None) -> list[str]:
        """Return the subjects of a part, in the order of measurement."""
        return list(dict.fromkeys(one.subject for one in self._all if one.part == part and case in (None, one.case)))


def run_all(study: Study, scale: float, work_dir: Path) -> Measurements:
    """Measure all cases one after the other in this process, as the tests do. `studies.job` does the same in parallel."""
    found: list[Measurement] = []
    for number, case in enumerate(study.cases(scale)):
        folder = work_dir / str(number)
        folder.mkdir()
        found += study.measure(case, folder)
    return Measurements(found)


def one_of(names: Sequence[str], name: str, what: str) -> str:
    """Return `name` if it is one of `names`. Raise InvalidArgumentError otherwise."""
    if name not in names:
        raise InvalidArgumentError(f"no such {what}", found=name, expected=f"one of {', '.join(names)}")
    return name
