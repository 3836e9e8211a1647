"""No topic's name leads out of the data folder, whichever request brings it: what Kafka forbids is refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.broker.raw import RawClient
from tests.examples import examples
from tidelog.model import METADATA_TOPIC
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.testing import Broker
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
TOPIC_RESOURCE = 2
RETENTION = AlterableConfig("retention.ms", 0, "5")
BATCH = bytes(build_batch_v2([Record(0, 1373450400000, CREATE_TIME, None, b"value")]))

# Pieces that names of files are made of, and some that Kafka allows.
PIECES = [
    "..",
    ".",
    "/",
    "\\",
    "~",
    "\0",
    "\n",
    "etc",
    "a",
    "-",
    "0",
    "%2e",
    "é",
    "\u202e",
    "-delete",
    "meta.properties",
    "$HOME",
]
NAMES = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(max_size=12),
    st.text("ab./", min_size=240, max_size=260),
)


class Place:
    """A broker whose data folder lies two folders deep, so that a way out would be seen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "outside").write_text("untouched")
        self.broker = Broker(root / "deep" / "data", log_segment_delete_delay_ms=0).start()
        self.client = RawClient(("127.0.0.1", self.broker.port))

    def around(self) -> list[str]:
        """What lies outside the data folder."""
        return [path.name for folder in (self.root, self.root / "deep") for path in sorted(folder.iterdir())]

    def folders(self) -> set[str]:
        """The topics' folders in it, but for those being deleted; asked for on the broker's thread."""
        found = self.broker.call(lambda _: [entry.name for entry in os.scandir(self.broker.data_dir) if entry.is_dir()])
        return {name for name in found if not name.endswith("-delete")} - {f"{METADATA_TOPIC}-0"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("names"))
    yield place
    place.client.close()
    place.broker.stop()


def is_legal(name: str) -> bool:
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")


def error_code(answer: Any) -> int:
    """The error of a topic's answer, or of its only partition's."""
    for partitions in ("partitions", "partition_responses"):
        if not hasattr(answer, "error_code") and hasattr(answer, partitions):
            answer = getattr(answer, partitions)[0]
    return int(answer.error_code)


@given(NAMES)
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_leads_out_of_the_folder(place: Place, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        name = name.encode("utf-8", "replace").decode()
    ask = place.client.ask
    requests = (
        (MetadataRequest([MetadataRequestTopic(name=name)], True), 9, "topics"),
        (
            ProduceRequest(None, 1, 1000, [TopicProduceData(name, partition_data=[PartitionProduceData(0, BATCH)])]),
            8,
            "responses",
        ),
        (
            FetchRequest(max_bytes=1000, topics=[FetchTopic(name, partitions=[FetchPartition(partition_max_bytes=9)])]),
            11,
            "responses",
        ),
        (ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, timestamp=-1)])]), 4, "topics"),
        (CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None)], 1000), 1, "results"),
        (IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC_RESOURCE, name, [RETENTION])]), 0, "responses"),
        (DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 1)])], 1000), 0, "topics"),
    )
    codes = [error_code(getattr(ask(request, version), answers)[0]) for request, version, answers in requests]
    ask(DescribeLogDirsRequest([DescribableLogDirTopic(name, [0])]), 1)
    (deleted,) = ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 3).responses
    (created,) = ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 1000), 4).topics
    assert place.around() == ["deep", "outside", "data"]
    assert (place.root / "outside").read_text() == "untouched"
    if is_legal(name):
        assert created.error_code == ErrorCode.NONE
        assert place.folders() == {f"{name}-0"}
        ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 3)
    else:
        assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert codes[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert ErrorCode.NONE not in codes
        assert deleted.error_code != ErrorCode.NONE
        assert place.folders() == set()
