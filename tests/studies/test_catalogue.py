"""Each study of the catalogue, small: its cases run, and what they measured becomes a report in which nothing is missing."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from studies.case import Measurements, run_all
from studies.catalogue import STUDIES, study
from studies.chapter import Bytes, Chapter, Claim, Millis, Plot, Table
from studies.report import plots
from studies.report.page import render
from tests.studies.conftest import SCALES
from tests.studies.report_samples import FACTS
from tests.studies.test_report_page import Page
from tidelog.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]
_chapters: dict[str, Chapter] = {}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_and_becomes_a_chapter(name: str, measured_study: Callable[[str], Measurements]) -> None:
    one = study(name)
    cases = one.cases(SCALES[name])
    assert name == one.NAME and 4 <= len(cases) <= 40
    assert pickle.loads(pickle.dumps(cases)) == cases
    assert [case for case, count in Counter(map(str, cases)).items() if count > 1] == []
    chapter = one.present(measured_study(name))
    assert chapter.name == name and chapter.question and chapter.answer and chapter.assumptions
    assert any(isinstance(part, Table) for part in chapter.parts) and any(isinstance(part, Plot) for part in chapter.parts)
    page = Page(render([chapter], FACTS))
    assert [one for one, count in Counter(page.ids).items() if count > 1] == []
    _chapters[name] = chapter


def test_ids_are_unique_among_all_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "draw", lambda plot: Markup())  # Each was drawn above.
    assert render(list(_chapters.values()), FACTS)


def test_cells_are_of_the_kinds_that_a_report_knows() -> None:
    """Types of numpy would be shown by luck only."""
    kinds = {
        type(cell)
        for chapter in _chapters.values()
        for part in chapter.parts
        if isinstance(part, Table)
        for row in part.rows
        for cell in row
    }
    assert kinds <= {str, int, float, bool, type(None), Claim, Bytes, Millis}


def test_a_study_that_does_not_exist() -> None:
    with pytest.raises(InvalidArgumentError, match="no such study"):
        study("which-clock")


def test_the_documents_example_is_a_study(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    (example,) = [code for code in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "STUDY =" in code]
    names: dict[str, Any] = {"measured_size": lambda parameters, work_dir: 1000.0 if parameters["codec"] == "none" else 400.0}
    exec(example, names)
    one = names["STUDY"]
    chapter = one.present(run_all(one, 1, tmp_path))
    assert "40% of it" in render([chapter], FACTS)


def test_the_document_names_all_studies() -> None:
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \| .* \| `([\w.]+)` \|$", text, re.MULTILINE) == list(STUDIES.items())
