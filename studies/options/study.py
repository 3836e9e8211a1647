"""The study of KIP-32's three options: its cases, and the functions that measure them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from studies.case import Case, Measurement, Measurements
from studies.chapter import Chapter
from studies.options import good_things, leader_change, migration, observed, presentation, replicas, sizes


class OptionsStudy:
    """See `Study`."""

    NAME = "options"
    TITLE = "Which timestamp, part 1: the three options of KIP-32"

    def cases(self, scale: float) -> list[Case]:
        """Return the cases, the longest first."""
        return [
            *replicas.cases(scale),
            *observed.cases(scale),
            *good_things.cases(scale),
            *leader_change.cases(scale),
            *migration.cases(scale),
            *sizes.cases(scale),
        ]

    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
        """Measure a case of `cases`."""
        if case.part in replicas.PARTS:
            return replicas.measure(case, work_dir)
        if case.part == observed.PART:
            return observed.measure(case, work_dir)
        if case.part == good_things.PART:
            return good_things.measure(case, work_dir)
        if case.part == leader_change.PART:
            return leader_change.measure(case, work_dir)
        if case.part == migration.PART:
            return migration.measure(case)
        return sizes.measure(case)

    def present(self, measurements: Measurements) -> Chapter:
        """Return the chapter with the results."""
        return presentation.chapter(self.NAME, self.TITLE, measurements)


STUDY = OptionsStudy()
