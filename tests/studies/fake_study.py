"""A study that measures next to nothing, for tests of what runs studies."""

from __future__ import annotations

from studies.case import Study


def fake_study(name: str, cases: int, failing: int | None = None) -> Study:
    """Return a study of so many cases; number `failing` fails."""
    # Within a function: a worker, which cannot import the tests, is sent the class itself.
    import logging
    from collections.abc import Iterable
    from pathlib import Path

    import numpy as np

    from studies.case import Case, Measurement, Measurements
    from studies.chapter import Chapter, Claim, Table, Verdict
    from tidelog.errors import NotFoundError

    class FakeStudy:
        NAME = name
        TITLE = name.title()

        def cases(self, scale: float) -> list[Case]:
            return [Case("part", str(number), {"number": number, "scale": scale}) for number in range(cases)]

        def measure(self, case: Case, work_dir: Path) -> Iterable[Measurement]:
            if case.parameters["number"] == failing:
                raise NotFoundError(f"no case {failing}")
            assert list(work_dir.iterdir()) == []
            (work_dir / "file").write_text("something")
            logging.getLogger("tidelog.storage").warning("on purpose")
            product = np.int64(case.parameters["number"]) * np.float64(case.parameters["scale"])
            yield Measurement("part", case.name, "subject", "product", product, "pieces")
            yield Measurement("part", case.name, "subject", "said", text=str(case))
            yield Measurement("part", case.name, "subject", "folder", text=str(work_dir))

        def present(self, measurements: Measurements) -> Chapter:
            rows = []
            for case in measurements.cases("part"):
                product = measurements.value("part", case, "subject", "product")
                verdict = Verdict.CONFIRMED if product else Verdict.REFUTED
                rows.append((case, product, Claim("more than nothing", f"{product:g}", verdict)))
            table = Table(f"{name}-table", "Products", ("case", "product", "claim"), tuple(rows))
            return Chapter(name, self.TITLE, "Is it?", "It is.", (table,))

    return FakeStudy()
