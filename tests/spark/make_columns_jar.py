"""Makes the jar by which Spark reads columns, of `ColumnarReads.java`: after each change of that file.

    python -m tests.spark.make_columns_jar

`test_columnar` compares the jar with the source.
"""

from __future__ import annotations

from pyspark.java_gateway import launch_gateway

from tidelog.spark.columnar import columns_jar, compiled
from tidelog.spark.java import ensure_java


def main() -> None:
    """Compile with Spark's Janino, and write the jar."""
    ensure_java()
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    columns_jar().write_bytes(compiled(gateway.jvm))
    gateway.shutdown()


if __name__ == "__main__":
    main()
