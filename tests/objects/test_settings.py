"""How object storage is reached: options, the environment, AWS's files; and no secret in a text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from obstore.exceptions import UnauthenticatedError

from tidelog.errors import AuthenticationError, InvalidArgumentError, StorageError
from tidelog.objects import object_store, stores
from tidelog.objects.address import options_of, parse, with_options
from tidelog.objects.object_path import ObjectPath, object_folder
from tidelog.objects.object_store import ObstoreStore
from tidelog.objects.opening import absolute_address, folders_at
from tidelog.objects.settings import s3_settings

SECRET = "very-secret"


@pytest.fixture(autouse=True)
def _no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROFILE", "REGION", "DEFAULT_REGION", "ENDPOINT_URL", "ENDPOINT_URL_S3", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def settings(address: str) -> dict[str, object]:
    return s3_settings(options_of(address), "bucket")[0]


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint_url": "http://h:1", "access_key_id": "k", "secret_access_key": SECRET, "region": "eu-west-1"},
        {"AWS_ENDPOINT_URL": "http://h:1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-west-1"},
        {
            "fs.s3a.endpoint": "http://h:1",
            "fs.s3a.access.key": "k",
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.endpoint.region": "eu-west-1",
        },
    ],
)
def test_options_have_three_spellings(options: dict[str, object]) -> None:
    found = settings(with_options("s3://bucket", options))
    assert found == {"endpoint": "http://h:1", "region": "eu-west-1", "access_key_id": "k", "secret_access_key": SECRET}


def test_the_environment_counts_where_no_option_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert settings("s3://bucket") == {"endpoint": "http://all:1", "region": "eu-west-2"}
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:1")
    assert settings("s3://bucket")["endpoint"] == "http://s3:1"
    assert settings(with_options("s3://bucket", {"endpoint_url": "http://own:1"}))["endpoint"] == "http://own:1"


def test_a_profile_gives_keys_region_and_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(
        "[profile lab]\nregion = eu-north-1\nservices = local\n[services local]\ns3 =\n  endpoint_url = http://h:2\n"
    )
    (tmp_path / "credentials").write_text(f"[lab]\naws_access_key_id = a\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    expected = {"endpoint": "http://h:2", "region": "eu-north-1", "access_key_id": "a", "secret_access_key": SECRET}
    assert settings("s3://bucket") == expected
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert settings("s3://bucket")["access_key_id"] == "of the environment"
    assert settings(with_options("s3://bucket", {"profile": "lab"})) == expected
    with pytest.raises(AuthenticationError, match="the AWS profile does not exist: found 'other'"):
        settings(with_options("s3://bucket", {"profile": "other"}))


def test_a_bucket_is_opened_again_with_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the environment count at once, those of a file when the old ones are refused."""
    place = parse("s3://bucket")
    first = stores.open_store(place, ())
    assert stores.open_store(place, ()) is first
    monkeypatch.setenv("AWS_PROFILE", "lab")
    (tmp_path / "credentials").write_text(f"[lab]\naws_access_key_id = a\naws_secret_access_key = {SECRET}\n")
    second = stores.open_store(place, ())
    assert second is not first

    def refuse(*_: object) -> None:
        raise UnauthenticatedError("ExpiredToken")

    assert isinstance(second, ObstoreStore)
    monkeypatch.setattr(second, "_tried", lambda ask, at: ObstoreStore._tried(second, refuse, at))
    with pytest.raises(AuthenticationError):
        second.get("key")
    assert stores.open_store(place, ()) is not second


def test_a_profile_with_a_role_is_left_to_boto3(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n")
    assert s3_settings({"profile": "role"}, "bucket") == ({"region": "us-east-1"}, "role")


def test_anonymous_and_addressing() -> None:
    assert settings(with_options("s3://bucket", {"anonymous": True})) == {"region": "us-east-1", "skip_signature": True}
    found = settings(with_options("s3://bucket", {"path_style": "false", "endpoint_url": "http://h:1"}))
    assert found == {"region": "us-east-1", "endpoint": "http://bucket.h:1", "virtual_hosted_style_request": True}


def test_mistakes_name_the_option_and_never_its_value() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean secret_access_key") as caught:
        with_options("s3://bucket", {"secret_acces_key": SECRET})
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="anonymous"):
        settings(with_options("s3://bucket", {"anonymous": "perhaps"}))


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        (
            "s3://bucket",
            {"access_key_id": "k", "secret_access_key": f"{SECRET}\nx"},
            "secret_access_key has unprintable characters",
        ),
        ("s3://bucket", {"access_key_id": "k"}, "Missing SecretAccessKey"),
        ("az://container", {"account_key": SECRET}, "Account must be specified"),
        ("az://c@account", {"account_key": f"{SECRET}!"}, "Invalid Access Key"),
        ("gs://bucket", {"service_account_key": f'{{"private_key": "{SECRET}"}}'}, "missing field"),
    ],
)
def test_what_no_client_can_be_made_of_is_one_error(address: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        object_folder(with_options(address, options)).is_dir()
    assert SECRET not in str(caught.value)


def test_an_endpoint_with_a_password_is_shown_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "RETRY_S", 0)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    options = {"endpoint_url": f"http://me:{SECRET}@127.0.0.1:1", "access_key_id": "k", "secret_access_key": "s"}
    with pytest.raises(StorageError) as caught:
        object_folder(with_options("s3://bucket", options)).is_dir()
    assert "http://***@127.0.0.1:1/" in str(caught.value)


def test_the_line_end_of_a_mounted_secret_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k\n")
    found = settings(with_options("s3://bucket", {"secret_access_key": f" {SECRET}\r\n"}))
    assert (found["access_key_id"], found["secret_access_key"]) == ("k", SECRET)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"aws_secret_access_key = {SECRET}\n".encode(), "the AWS configuration file cannot be parsed: found line 1"),
        (f"[default]\naws_secret_access_key {SECRET}\n".encode(), "the AWS configuration file cannot be parsed: found line 2"),
        (b"[default]\naws_secret_access_key = \xff\n", "the AWS configuration file cannot be parsed"),
    ],
)
def test_a_file_of_profiles_that_cannot_be_read_is_one_error(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "credentials"
    path.write_bytes(text)
    with pytest.raises(AuthenticationError, match=f"{said}.*credentials") as caught:
        settings("s3://bucket")
    assert SECRET not in str(caught.value)


def test_an_address_carries_its_options_and_shows_none() -> None:
    address = with_options("s3://bucket/x", {"secret_access_key": SECRET})
    path = object_folder(address)
    for text in (str(address), f"{address!r}", str(path), repr(path), str(path.address)):
        assert SECRET not in text
    again = pickle.loads(pickle.dumps(address))
    assert (again, options_of(again)) == ("s3://bucket/x", {"secret_access_key": SECRET})


def test_several_buckets_keep_their_own_options(tmp_path: Path) -> None:
    """Another process opens them by one address."""
    a, b = with_options("s3://a/x", {"secret_access_key": SECRET}), with_options("s3://b/x", {"region": "eu-west-1"})
    orders: list[list[str | Path]] = [[a, b, tmp_path], [tmp_path, b, a]]
    for places in orders:
        address = pickle.loads(pickle.dumps(absolute_address(places)))
        assert SECRET not in f"{address}{address!r}"
        found = {str(one): one.source.options for one in folders_at(address) if isinstance(one, ObjectPath)}
        assert found == {"s3://a/x": {"secret_access_key": SECRET}, "s3://b/x": {"region": "eu-west-1"}}
        assert [str(one) for one in folders_at(address)] == [str(one) for one in places]
