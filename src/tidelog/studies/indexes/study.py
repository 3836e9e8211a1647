"""The study of indexes: its cases, measured one by one, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidelog.studies.case import Case, Measurement, Measurements
from tidelog.studies.chapter import Chapter
from tidelog.studies.indexes import behaviour, density, replication, side_by_side, volume
from tidelog.studies.indexes.presenting import present

NAME = "indexes"
TITLE = "Which index"

_PARTS = {module.PART: module for module in (side_by_side, density, volume, behaviour, replication)}


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
        """Say what came out of all cases."""
        return present(measurements)


STUDY = IndexStudy()
