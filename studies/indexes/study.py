"""The study of indexes: its cases, their measurements and the chapter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from studies.case import Case, Measurement, Measurements
from studies.chapter import Chapter
from studies.indexes import behaviour, density, replication, side_by_side, volume
from studies.indexes.presenting import present

NAME = "which-index"
TITLE = "Which index"


class _Part(Protocol):
    """The modules with cases."""

    def cases(self, scale: float) -> list[Case]: ...
    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]: ...


_PARTS: dict[str, _Part] = {
    side_by_side.PART: side_by_side,
    density.PART: density,
    volume.PART: volume,
    behaviour.PART: behaviour,
    replication.PART: replication,
}


class IndexStudy:
    """See `Study`."""

    NAME = NAME
    TITLE = TITLE

    def cases(self, scale: float) -> list[Case]:
        """Return the cases of all parts."""
        return [case for module in _PARTS.values() for case in module.cases(scale)]

    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
        """Measure one case."""
        return _PARTS[case.part].measure(case, work_dir)

    def present(self, measurements: Measurements) -> Chapter:
        """Return the chapter with the results of all cases."""
        return present(measurements)


STUDY = IndexStudy()
