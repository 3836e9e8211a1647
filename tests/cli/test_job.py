"""`tidelog job` as far as it goes without Spark: help, options, the program for spark-submit, docs/jobs.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import KAFKA_3, ROOT, run, run_ok
from tests.patience import PATIENCE_S
from tidelog.cli.app import cli
from tidelog.cli.job import JOBS, SUBMIT_SCRIPT, command

PAGE = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAMES = command.list_commands(click.Context(command))
COMMON = {"--master", "--conf", "--json", "--rows"}


def job(name: str) -> click.Command:
    found = command.get_command(click.Context(command), name)
    assert found is not None
    return found


def options_of(name: str) -> set[str]:
    given = (option for one in job(name).params if isinstance(one, click.Option) for option in (*one.opts, *one.secondary_opts))
    return {option for option in given if option.startswith("--")}


def test_the_list_of_jobs() -> None:
    lines = run("job").stderr.splitlines()
    listed = [line.split() for line in lines[lines.index("Commands:") + 1 :]]
    assert [words[0] for words in listed if words] == NAMES
    assert all(len(words) > 3 for words in listed if words)
    assert list(JOBS)[: len(NAMES)] == NAMES or set(NAMES) <= set(JOBS)
    assert run("job").exit_code == 2


def test_help_costs_no_spark() -> None:
    """Every job's help in one process: neither PySpark nor Arrow nor numpy is imported for it."""
    program = (
        "import sys, click\nfrom tidelog.cli.job import command, JOBS\n"
        "context = click.Context(command)\n"
        "for name in command.list_commands(context):\n    command.get_command(context, name).get_help(context)\n"
        "print(sorted({'pyspark', 'py4j', 'pandas'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("latency", "  unknown   records of old formats that have one time or none"),
        ("retention", "  file time          when the file was last written (before KIP-33)"),
    ],
)
def test_tables_in_a_help_keep_their_lines(name: str, line: str) -> None:
    assert line in run_ok("job", name, "--help").stdout.splitlines()


def test_no_help_shows_a_sign_of_its_markup() -> None:
    assert [name for name in NAMES if "\\b" in run_ok("job", name, "--help").stdout] == []


def test_the_program_for_spark_submit() -> None:
    path = Path(run_ok("job", "--submit-script").stdout.strip())
    assert path == SUBMIT_SCRIPT
    assert path.is_file()
    # Its folder is searched first for every import.
    assert sorted(one.name for one in path.parent.glob("*.py")) == ["__init__.py", "tidelog_job.py"]
    done = subprocess.run([sys.executable, path, "--submit-script"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == str(path)


@pytest.mark.parametrize("name", NAMES)
def test_all_jobs_take_the_same_options(name: str) -> None:
    assert options_of(name) >= COMMON


def test_careless_use(tmp_path: Path) -> None:
    """All of this is said before Spark is started."""
    assert run("job", "nope").exit_code == 2
    assert run("job", "verify").exit_code == 2
    assert "is not KEY=VALUE" in run("job", "verify", KAFKA_3, "--conf", "spark.x").error
    for name in ("verify", "build", "rebuild"):
        assert run("job", name, KAFKA_3, "--partition", "0").exit_code == 2
    refused = run("job", "mirror", "127.0.0.1:1", "--target", KAFKA_3, "--map", tmp_path / "map")
    assert (refused.exit_code, "--target needs HOST:PORT" in refused.stderr) == (2, True)
    assert "there is no group 'nobody'" in run("job", "lag", KAFKA_3, "--group", "nobody").error
    assert "inside the data folder" in run("job", "verify", KAFKA_3, "--rows", KAFKA_3 / "rows").error
    (tmp_path / "rows").mkdir()
    assert "already exists" in run("job", "verify", KAFKA_3, "--rows", tmp_path / "rows").error
    assert "no such folder" in run("job", "verify", KAFKA_3, "--rows", tmp_path / "nowhere" / "rows.csv").error


def test_a_master_beside_spark_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "sets the master: leave the option out" in run("job", "verify", KAFKA_3, "--master", "local[1]").error


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert "pip install 'tidelog[spark]'" in run("job", "verify", KAFKA_3).error


# --- docs/jobs.md


@pytest.mark.parametrize("name", ["verify", "build", "rebuild"])
def test_every_option_is_documented(name: str) -> None:
    section = SECTIONS["verify, build, rebuild"]
    assert f"    tidelog job {name} " in section
    for option in options_of(name) - COMMON - {"--help"}:
        assert f"`{option}" in section or f"/{option}`" in section or option == "--no-time-map", option


def test_common_options_are_documented() -> None:
    for option in COMMON:
        assert f"`{option} " in SECTIONS["Options of all jobs"] or f"`{option}`" in SECTIONS["Options of all jobs"]
    assert "job" in cli.list_commands(click.Context(cli))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["lookup", KAFKA_3, "none.csv"], "the file with the lookup rows does not exist"),
        (["lookup", KAFKA_3, "questions.txt"], "the lookup rows are in an unknown file format"),
        (["lookup", KAFKA_3, "questions.csv"], "the lookup rows lack the column 'timestamp'"),
        (["lookup", KAFKA_3, "questions.parquet"], "not a Parquet file"),
        (["migrate", KAFKA_3, "."], "the new folder already exists and is not empty"),
        *((["migrate", KAFKA_3, "new", "--topic", "nope"], "no topic 'nope'"),),
        *(([name, KAFKA_3, "nope"], "no topic 'nope'") for name in ("verify", "build", "rebuild", "latency", "retention")),
        *(
            ([name, KAFKA_3, "two-partitions", "-p", 9], "no partition 9")
            for name in ("verify", "rebuild", "latency", "retention")
        ),
    ],
)
def test_mistakes_are_found_before_spark_starts(
    arguments: list[object], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tidelog.spark.jobs.job_session.job_session", lambda *_: pytest.fail("Spark starts"))
    for name, text in (("questions.csv", "topic,partition\n"), ("questions.parquet", "x"), ("questions.txt", "")):
        Path(name).write_text(text)
    ran = run("job", *arguments)
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert error in ran.stderr
