"""Optional packages that `pip install tidelog` does not install, because few users need them and some are large.

| extra | installs | for |
|---|---|---|
| sql | DuckDB, prompt_toolkit | `tidelog sql`, `tidelog.sql`, `tidelog cat --where` |
| decode | orjson, fastavro, protobuf, protoc, msgspec | `tidelog cat --decode`, `tidelog.scan(decode=…)` |
| objects | obstore, boto3 | data folders in S3, Google Cloud Storage and Azure |
| hdfs | hdfs-native | data folders in HDFS |
| spark | PySpark, a Java runtime, numpy | `tidelog job`, `tidelog.spark`, `tidelog.sources.lookups` |
| handover | confluent-kafka | `tidelog handover` to a running broker |
| oauth | PyJWT, cryptography | OAUTHBEARER with signed tokens, in `tidelog serve` |
| zookeeper | kazoo | `tidelog serve` in a ZooKeeper cluster |
| patterns | google-re2 | consumer groups that subscribe by a regular expression |
| tiered | cryptography | encrypted segments in remote storage; signed reports of backups |
| ui | starlette, uvicorn | `tidelog ui` |
| all | all of these | |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.errors import MissingPackageError


@contextmanager
def imported_from(extra: str, package: str) -> Iterator[None]:
    """Raise MissingPackageError if an import in the block does not find its module; `package` is the package's common name."""
    try:
        yield
    except ModuleNotFoundError:
        raise MissingPackageError(f"{package} is not installed: pip install 'tidelog[{extra}]'") from None
