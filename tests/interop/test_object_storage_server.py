"""The S3 server of these tests does what S3 does, as a client other than ours sees it; its proxy counts and breaks requests."""

from __future__ import annotations

import http.client
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import PreconditionError
from pyarrow import fs

from tests.patience import PATIENCE_S
from tests.s3.requests import error, half_body, listing, reset, short_answer, without_key
from tests.s3.server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server


def client(server: S3Server, secret: str = SECRET_KEY) -> fs.S3FileSystem:
    retries = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    return fs.S3FileSystem(
        access_key=ACCESS_KEY, secret_key=secret, endpoint_override=server.front.url, region=REGION, retry_strategy=retries
    )


def signed_path(server: S3Server, key: str) -> str:
    signed: str = obstore.sign(server.store, "GET", key, timedelta(minutes=10))
    return signed.partition(str(server.port))[2]


def test_objects_are_listed_and_read_by_ranges(s3: S3Server, tmp_path: Path) -> None:
    (tmp_path / "events-0").mkdir()
    (tmp_path / "events-0" / "one.log").write_bytes(bytes(range(100)))
    (tmp_path / "empty").write_bytes(b"")
    s3.upload(tmp_path, "served")
    with s3.front.measured() as front:
        found = {one.path: one.size for one in client(s3).get_file_info(fs.FileSelector(f"{BUCKET}/served", recursive=True))}
        assert found == {f"{BUCKET}/served/empty": 0, f"{BUCKET}/served/events-0": None, f"{BUCKET}/served/events-0/one.log": 100}
        with client(s3).open_input_file(f"{BUCKET}/served/events-0/one.log") as file:
            assert file.read_at(3, 7) == bytes([7, 8, 9])
        assert front.counts()["LIST"] >= 1
        assert [(one.kind, one.range, one.sent_bytes) for one in front.requests if one.kind == "GET"] == [("GET", (7, 10), 3)]
    with pytest.raises(OSError, match=r"(?i)signature|denied"):
        client(s3, "wrong").open_input_file(f"{BUCKET}/served/events-0/one.log")


def test_a_condition_on_the_tag_is_kept(s3: S3Server) -> None:
    s3.put("tagged", b"first")
    tag = obstore.head(s3.store, "tagged")["e_tag"]
    s3.put("tagged", b"other")
    with pytest.raises(PreconditionError):
        obstore.get(s3.store, "tagged", options={"range": (0, 2), "if_match": tag})


def test_faults(s3: S3Server) -> None:
    s3.put("faults/a", bytes(1000))
    s3.put("faults/b", bytes(1000))

    def get(key: str = "faults/a") -> tuple[int, int]:
        with closing(http.client.HTTPConnection("127.0.0.1", s3.front.port, timeout=PATIENCE_S)) as asked:
            asked.request("GET", signed_path(s3, key), headers={"Range": "bytes=0-99", "Host": f"127.0.0.1:{s3.port}"})
            answer = asked.getresponse()
            return answer.status, len(answer.read())

    with s3.front.measured() as front:
        assert get() == (206, 100)
        front.fail(error(503, "SlowDown"), times=1)
        assert get()[0] == 503
        front.fail(short_answer, times=1)
        assert get() == (206, 99)
        front.fail(half_body, times=1)
        with pytest.raises(http.client.IncompleteRead):
            get()
        front.fail(reset, times=1)
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            get()
        assert get() == (206, 100)
        front.fail(without_key("faults/b"), "LIST")
        assert [one.base_name for one in client(s3).get_file_info(fs.FileSelector(f"{BUCKET}/faults"))] == ["a"]
    with s3.front.measured() as front:
        front.fail(listing((f"many/{number:05}", 7) for number in range(2500)), "LIST")
        assert len(client(s3).get_file_info(fs.FileSelector(f"{BUCKET}/many"))) == 2500
        assert front.count("LIST") == 3
