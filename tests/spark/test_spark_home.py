"""The folder that a local Spark is given, without a JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
import pytest

from tidelog.spark.spark_home import light_spark_home

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tidelog"


@pytest.mark.parametrize("master", [None, "local", "local[2]", "local[*]"])
def test_a_local_session_sees_no_archive(master: str | None, cache: Path) -> None:
    for _ in range(2):
        with light_spark_home(master):
            home = Path(os.environ["SPARK_HOME"])
            assert home.parent == cache
            assert (home / "jars").samefile(INSTALLED / "jars")
            assert (home / "bin" / "spark-submit").exists()
            assert not (home / "python").exists()
        assert "SPARK_HOME" not in os.environ
    assert [path.name for path in cache.iterdir()] == [home.name]


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,512]"])
def test_a_cluster_gets_what_it_would_get_anyway(master: str) -> None:
    with light_spark_home(master):
        assert "SPARK_HOME" not in os.environ


def test_what_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with light_spark_home("local"):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_without_a_place_sparks_own_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tidelog").write_text("no folder")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere" / "at all"))
    (tmp_path / "nowhere").write_text("no folder either")
    with light_spark_home("local"):
        assert "SPARK_HOME" not in os.environ
