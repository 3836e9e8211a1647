"""The study's cases, and the functions that measure them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from studies.case import Case, Measurement, Measurements
from studies.chapter import Chapter
from studies.policies import measuring, moving, presenting
from studies.policies.scenarios import QUIET, SCENARIOS, SEED, scenario
from tidelog.errors import InvalidArgumentError

COMBINED_SCENARIOS = ("small latency", "large latency", "mixed latency", "one from the future", "quiet topic")
FEW = ("small latency", "large latency", "mixed latency", "one from the future", "broker jumps 30 days")
FEW_BELOW = 0.1
"""Below this scale only the scenarios in `FEW` run, because the checks of a scenario cost the same even with few messages."""


class PoliciesStudy:
    """See the package's docstring."""

    NAME = "policies"
    TITLE = "Which timestamp, part 2: retention and rolling"

    def cases(self, scale: float) -> list[Case]:
        """Return the cases. `scale` changes the number of messages but no durations; a small scale omits scenarios."""
        names = [one.name for one in (*SCENARIOS, QUIET) if scale >= FEW_BELOW or one.name in FEW]
        few = scale < FEW_BELOW
        parts = [
            *((measuring.RETENTION, name) for name in names if name != QUIET.name),
            *((measuring.ROLLING, name) for name in names if not few or name in COMBINED_SCENARIOS),
            *((measuring.COMBINED, name) for name in COMBINED_SCENARIOS if not few or name in ("small latency", "mixed latency")),
            (measuring.SWEEP, "latency"),
            (moving.REASSIGNMENT, "copied on day 4"),
            (moving.MIGRATION, "format 0.9.0 to today's"),
        ]
        return [Case(part, name, {"scale": scale, "seed": SEED}) for part, name in parts]

    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
        """Measure one case."""
        scale = float(case.parameters["scale"])
        if case.part == measuring.RETENTION:
            return measuring.measure_retention(scenario(case.name), scale, work_dir)
        if case.part == measuring.ROLLING:
            return measuring.measure_rolling(scenario(case.name), scale, work_dir)
        if case.part == measuring.COMBINED:
            return measuring.measure_combined(scenario(case.name), scale)
        if case.part == measuring.SWEEP:
            return measuring.measure_sweep(scale)
        if case.part == moving.REASSIGNMENT:
            return moving.measure_reassignment(scale, work_dir)
        if case.part == moving.MIGRATION:
            return moving.measure_migration(scale, work_dir)
        raise InvalidArgumentError("no such part of the study", found=case.part)

    def present(self, measurements: Measurements) -> Chapter:
        """Return the chapter with the results."""
        return presenting.present(measurements)


STUDY = PoliciesStudy()
