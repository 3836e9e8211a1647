"""The list of studies. Each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from studies.case import Study, one_of

STUDIES = {
    "which-index": "studies.indexes",
    "options": "studies.options",
    "policies": "studies.policies",
    "use-cases": "studies.use_cases",
}
"""Study name → package, in the order of the report. `STUDY` in the package's module `study` is the study."""


def study(name: str) -> Study:
    """Return the study of that name. Raise InvalidArgumentError if there is none."""
    module = import_module(f"{STUDIES[one_of(list(STUDIES), name, 'study')]}.study")
    return cast("Study", module.STUDY)
