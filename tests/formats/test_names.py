"""File and folder names: LocalLogTest's lines about parsing."""

from __future__ import annotations

import pytest

from tidelog.errors import InvalidArgumentError
from tidelog.formats import names


def test_parse_topic_partition_name() -> None:
    """LocalLogTest.testParseTopicPartitionName"""
    assert names.parse_topic_partition_name("test_topic-143") == ("test_topic", 143)
    assert names.parse_topic_partition_name("a-b.c-7") == ("a-b.c", 7)


def test_parse_topic_partition_name_with_period_for_deleted_topic() -> None:
    """LocalLogTest.testParseTopicPartitionNameWithPeriodForDeletedTopic"""
    for name in (
        names.log_delete_dir_name("foo.bar-testtopic", 42),
        names.log_stray_dir_name("foo.bar-testtopic", 42),
        f"foo.bar-testtopic-42.{32 * 'a'}{names.FUTURE_DIR_SUFFIX}",
    ):
        assert names.is_suffixed_dir(name)
        assert names.parse_topic_partition_name(name) == ("foo.bar-testtopic", 42)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("", "ForEmptyName"),
        (None, "ForNull"),
        ("testtopic1999", "ForMissingSeparator"),
        ("-1999", "ForMissingTopic"),
        ("testtopic-", "ForMissingPartition"),
        ("testtopic-1999a", "ForInvalidPartition"),
        ("testtopic--", "ForInvalidPartition"),
        ("testtopic-1_000", "ForInvalidPartition"),
        ("testtopic-99999999999", "ForInvalidPartition"),
        ("1999-testtopic-delete", "ForExistingInvalidDir"),
        ("non-kafka-dir-stray", "ForExistingInvalidDir"),
        ("topic-1-delete", "ForExistingInvalidDir"),
        ("-1999.abc-delete", "ForMissingTopic"),
        ("testtopic1999.abc-delete", "ForMissingSeparator"),
        ("testtopic-.abc-delete", "ForMissingPartition"),
        ("testtopic-1999a.abc-delete", "ForInvalidPartition"),
    ],
)
def test_parse_topic_partition_name_refuses(name: str | None, line: str) -> None:
    """LocalLogTest.testParseTopicPartitionNameForEmptyName, ForNull, ForMissingSeparator, ForMissingTopic, ForMissingPartition,
    ForInvalidPartition, ForExistingInvalidDir"""
    with pytest.raises(InvalidArgumentError, match="partition"):
        names.parse_topic_partition_name(name)


def test_log_delete_dir_name() -> None:
    """LocalLogTest.testLogDeleteDirName: at most 255 characters, the topic gives way"""
    short = names.log_delete_dir_name("foo", 3)
    assert short.startswith("foo-3.") and short.endswith("-delete") and len(short) == len("foo-3.-delete") + 32
    for make in (names.log_delete_dir_name, names.log_stray_dir_name):
        long = make("n" * 249, 100)
        assert len(long) == 255
        assert names.parse_topic_partition_name(long).partition == 100
    assert names.log_delete_dir_name("foo", 3) != short


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.deleted", ".timeindex.swap"])
def test_offset_from_file(suffix: str) -> None:
    """LocalLogTest.testOffsetFromFile"""
    assert names.file_name(23423423, suffix) == f"00000000000023423423{suffix}"
    assert names.offset_from_file_name(f"00000000000023423423{suffix}") == 23423423


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", ".log", "12x.log", "99999999999999999999.log", "٣.log"])
def test_offset_from_file_refuses(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        names.offset_from_file_name(name)
