"""The study's cases, and the functions that measure them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from studies.case import Case, Measurement, Measurements, one_of
from studies.chapter import Chapter
from studies.use_cases import bootstrap, failover, lag, latency_metric, presenting, searching
from studies.use_cases.clusters import SKEWS, TRUE_CLOCKS

SEED = 33
RECORDS = 7_200
"""Two hours, one message per second."""

SMALLEST_RECORDS = 300

ASSUMPTIONS = "assumptions"


def _measure_assumptions(case: Case, work_dir: Path) -> list[Measurement]:
    """Pass the parameters that all cases share to the chapter."""
    return [
        Measurement(case.part, case.name, "workload", "seed", float(case.parameters["seed"])),
        Measurement(case.part, case.name, "workload", "messages", float(case.parameters["records"]), "messages"),
    ]


MEASURES: dict[str, Callable[[Case, Path], list[Measurement]]] = {
    searching.SEARCH: searching.measure_search,
    searching.ONE_CREATE_TIME: searching.measure_one_create_time,
    bootstrap.BOOTSTRAP: bootstrap.measure,
    failover.FAILOVER: failover.measure,
    failover.DOCUMENTS_CASE: failover.measure_documents_case,
    lag.LAG: lag.measure,
    latency_metric.LATENCY_METRIC: latency_metric.measure,
    ASSUMPTIONS: _measure_assumptions,
}

LAG_SKEWS = (TRUE_CLOCKS.name, "producers ahead", "broker behind")


class UseCasesStudy:
    """See the package's docstring."""

    NAME = "use-cases"
    TITLE = "KIP-33's use cases"

    def cases(self, scale: float) -> list[Case]:
        """Return the cases. `scale` is the share of two hours of messages; the minimum is five minutes."""
        names = {
            searching.SEARCH: [skew.name for skew in SKEWS],
            searching.ONE_CREATE_TIME: [TRUE_CLOCKS.name],
            bootstrap.BOOTSTRAP: list(bootstrap.ORDERS),
            failover.FAILOVER: [*(skew.name for skew in SKEWS), failover.COPIED],
            failover.DOCUMENTS_CASE: [TRUE_CLOCKS.name],
            lag.LAG: list(LAG_SKEWS),
            latency_metric.LATENCY_METRIC: list(latency_metric.CASES),
            ASSUMPTIONS: ["all"],
        }
        parameters = {"seed": SEED, "records": max(SMALLEST_RECORDS, int(RECORDS * scale))}
        return [Case(part, name, parameters) for part, of_part in names.items() for name in of_part]

    def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
        """Measure one case."""
        return MEASURES[one_of(list(MEASURES), case.part, "part of the study")](case, work_dir)

    def present(self, measurements: Measurements) -> Chapter:
        """Return the chapter with the results."""
        return presenting.present(measurements)


STUDY = UseCasesStudy()
