"""`python -m studies`: one file that appears whole, a summary, and no Spark before the arguments are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from studies import command as study
from tests.cli.conftest import Ran, run
from tests.studies.report_samples import CHAPTERS
from tidelog.spark.jobs.result import Summary

SUMMARY = Summary(("study", "cases"), (("first", 3), ("second", 4)))


def run_studies(*args: object) -> Ran:
    return run(*args, program=study.command)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The job without Spark: what it was asked for."""
    import studies.job as job

    asked: list[Any] = []

    def run_studies(spark: Any, names: Any, scale: float, progress: Any) -> Any:
        asked.append((names, scale))
        return SimpleNamespace(rows=None, summary=SUMMARY, faults=0), list(CHAPTERS)

    def run_job(options: Any, name: str, work: Callable[..., Any]) -> None:
        spark = SimpleNamespace(version="4.0.0", sparkContext=SimpleNamespace(defaultParallelism=2, master="local[2]"))
        print(work(spark, lambda done, total: None).summary)

    monkeypatch.setattr(job, "run_studies", run_studies)
    monkeypatch.setattr(study, "run_job", run_job)
    return asked


def test_all_studies_by_default(asked: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    ran = run_studies("--out", out)
    assert ran.exit_code == 0, ran.stderr
    assert asked == [(None, 1.0)]
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>") and "<dd>4.0.0</dd>" in page and "<dd>2</dd>" in page
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    assert ran.lines[0].split() == ["study", "cases"]
    assert str(out) in ran.stderr


def test_some_studies_at_a_scale(asked: list[Any], tmp_path: Path) -> None:
    assert run_studies("options", "policies", "--scale", "0.1", "--out", tmp_path / "r.html").exit_code == 0
    assert asked == [(("options", "policies"), 0.1)]


@pytest.mark.parametrize("wrong", [("which-clock",), ("--scale", "0"), ("--scale", "much")])
def test_what_makes_no_sense(asked: list[Any], wrong: tuple[str, ...], tmp_path: Path) -> None:
    ran = run_studies("--out", tmp_path / "r.html", *wrong)
    assert ran.exit_code == 2 and ran.error
    assert asked == [] and list(tmp_path.iterdir()) == []


def test_without_jinja(asked: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    ran = run_studies("--out", tmp_path / "r.html")
    assert ran.exit_code == 1 and "pip install -e '.[study]'" in ran.error
    assert asked == []


def test_a_report_that_cannot_be_written(asked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run_studies("--out", tmp_path / "file" / "r.html")
    assert ran.exit_code == 1 and str(tmp_path / "file") in ran.error
    assert asked == []
