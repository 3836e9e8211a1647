"""What a run of `tidelog` imports."""

from __future__ import annotations

import pytest

from tests.cli.conftest import KAFKA_3, ROOT, run_process


@pytest.mark.parametrize(
    "arguments",
    [("sql", KAFKA_3, "select count(*) from transactions"), ("cat", KAFKA_3, "transactions", "--grep", "a", "--sort", "time")],
)
def test_pandas_is_not_imported(arguments: tuple[object, ...]) -> None:
    environment = {"PYTHONPROFILEIMPORTTIME": "1", "PYTHONPATH": f"{ROOT / 'src'}"}
    ran = run_process(*arguments, env=environment)
    assert ran.exit_code == 0, ran.stderr[-2000:]
    # An import that failed is listed, too: hence a module of its own.
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "pyarrow" in imported and "pandas.core" not in imported
