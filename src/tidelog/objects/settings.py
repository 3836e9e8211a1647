"""The configuration of object storage: an address's options first, then the environment, as in the providers' own tools.

| option | Hadoop's name | environment |
|---|---|---|
| `profile` | | `AWS_PROFILE` |
| `region` | `fs.s3a.endpoint.region` | `AWS_REGION`, `AWS_DEFAULT_REGION` |
| `endpoint_url` | `fs.s3a.endpoint` | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` |
| `access_key_id` | `fs.s3a.access.key` | `AWS_ACCESS_KEY_ID` |
| `secret_access_key` | `fs.s3a.secret.key` | `AWS_SECRET_ACCESS_KEY` |
| `session_token` | `fs.s3a.session.token` | `AWS_SESSION_TOKEN` |
| `anonymous` | `fs.s3a.aws.credentials.provider` | `AWS_SKIP_SIGNATURE` |
| `path_style` | `fs.s3a.path.style.access` | |
| `cache_dir`, `cache_bytes` | | `TIDELOG_CACHE_DIR`, `TIDELOG_CACHE_BYTES` |

Options may have the prefix `aws_`, and are case-insensitive. Access keys in the options or the environment take precedence over a
profile. Without access keys and a profile, the role of an instance, a container, or a web identity is used. For Google and Azure
the names are those of `obstore.store.GCSConfig` and `AzureConfig`, for example `service_account_path` and `account_key`; their
environment variables are read too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import Any

from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.near_names import did_you_mean

_S3 = {
    "profile": ("AWS_PROFILE",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "anonymous": ("AWS_SKIP_SIGNATURE",),
    "path_style": (),
}
"""The options for S3, with the environment variables and Hadoop's names for each."""

_HADOOP = {
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.endpoint": "endpoint_url",
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.path.style.access": "path_style",
    "fs.s3a.aws.credentials.provider": "anonymous",
}
HADOOP_NAMES = tuple(_HADOOP)

_CACHE = {"cache_dir": ("TIDELOG_CACHE_DIR",), "cache_bytes": ("TIDELOG_CACHE_BYTES",)}
_OTHERS = {
    "gs": ("service_account_path", "service_account_key", "application_credentials", "base_url", "skip_signature"),
    "abfs": (
        "account_name", "account_key", "client_id", "client_secret", "authority_id", "sas_key", "token", "endpoint",
        "use_emulator", "use_azure_cli", "federated_token_file", "skip_signature",
    ),
    "hdfs": ("config_dir", "kerberos_principal", "kerberos_keytab", "kerberos_cache"),
}  # fmt: skip
_DOCUMENTS = ("service_account_key",)
"""Options whose values may span several lines."""
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no", "")
_PREFIX = re.compile("^(aws|google|azure)_")
_SECRET = ("access_key_id", "secret_access_key", "session_token")


def option_name(given: str, service: str) -> str | None:
    """Return the name that this module uses for an option, or None if no service has such an option."""
    name = (_HADOOP if service == "s3" else {}).get(given.lower(), given.lower().replace("-", "_"))
    if name == "endpoint" and service == "s3":
        name = "endpoint_url"
    return next((one for one in (name, _PREFIX.sub("", name)) if one in _known(service)), None)


def _known(service: str) -> list[str]:
    return [*(_S3 if service == "s3" else _OTHERS[service]), *_CACHE]


def named_options(options: Mapping[str, object], service: str) -> dict[str, str]:
    """Return options under the names of this module. Raises InvalidArgumentError for an unknown name. The error shows no
    value.
    """
    found = {}
    for given, value in options.items():
        name = option_name(given, service)
        if name == "anonymous" and "." in given:  # The value is a list of Hadoop's classes.
            value = "Anonymous" in str(value)
        if name is None:
            known = _known(service)
            raise InvalidArgumentError(
                f"unknown option for object storage{did_you_mean(given.lower(), known)}",
                found=repr(given),
                expected=", ".join(known),
            )
        if value is not None:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def setting(options: Mapping[str, str], name: str) -> str | None:
    """Return an option's value from the options or the environment, or None if the option is not set."""
    if name in options:
        return checked(name, options[name])
    return next((checked(one, value) for one in (_S3 | _CACHE)[name] if (value := os.environ.get(one))), None)


def checked(name: str, value: str) -> str:
    """Return a value without surrounding white space, such as the line end of a mounted secret. Raises InvalidArgumentError for
    characters that a request cannot contain. The error does not show the value.
    """
    value = value.strip()
    if not value.isprintable() and name not in _DOCUMENTS:
        raise InvalidArgumentError(f"{name} has unprintable characters, such as a line break")
    return value


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the value of a boolean option. Raises InvalidArgumentError for any other value."""
    text = setting(options, name)
    if text is not None and text.lower() not in (*_TRUE, *_FALSE):
        raise InvalidArgumentError(f"invalid value for option {name}", found=repr(text), expected="true or false")
    return default if text is None else text.lower() in _TRUE


def s3_settings(options: Mapping[str, str], bucket: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments for an S3 store (`obstore.store.S3Store`), and the name of the profile that has the credentials, or
    None.

    Raises InvalidArgumentError, AuthenticationError for a profile that does not exist.
    """
    found: dict[str, Any] = {}
    name = setting(options, "profile")
    profile = _profile(name)
    endpoint = setting(options, "endpoint_url") or profile.get("endpoint_url")
    if endpoint is not None:
        found["endpoint"] = (endpoint if "://" in endpoint else f"https://{endpoint}").rstrip("/")
    found["region"] = setting(options, "region") or profile.get("region") or "us-east-1"
    if not flag(options, "path_style", True):
        found["virtual_hosted_style_request"] = True
        if "endpoint" in found:
            scheme, _, host = found["endpoint"].partition("://")
            found["endpoint"] = f"{scheme}://{bucket}.{host}"
    if flag(options, "anonymous", False):
        return found | {"skip_signature": True}, None
    keys = {key: value for key in _SECRET if (value := setting(options, key))}
    is_chosen = "profile" in options and "access_key_id" not in options
    if "access_key_id" in keys and not is_chosen:
        return found | keys, None
    if "aws_access_key_id" in profile:
        return found | {key: checked(name, value) for key in _SECRET if (value := profile.get(name := f"aws_{key}"))}, None
    return found, (name or "default") if profile.keys() & _NEEDS_BOTO else None


_NEEDS_BOTO = {"role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file", "login_session"}
"""If a profile has one of these settings, its credentials come from elsewhere, and boto3 resolves them."""


def _profile(name: str | None) -> dict[str, str]:
    """Return a profile's settings in the AWS files. For the default profile the result is empty if there are no files."""
    found: dict[str, str] = {}
    is_there = False
    files = (("AWS_CONFIG_FILE", "~/.aws/config", "profile "), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", ""))
    for variable, default, prefix in files:
        parser = ConfigParser(interpolation=None, strict=False)
        path = Path(os.environ.get(variable, default)).expanduser()
        try:
            parser.read(path, encoding="utf-8")
        except (ConfigError, UnicodeDecodeError) as error:  # The error's text contains the line, which may be a secret.
            line = getattr(error, "lineno", None) or next((number for number, _ in getattr(error, "errors", ())), None)
            raise AuthenticationError(
                "the AWS configuration file cannot be parsed", path=path, found=None if line is None else f"line {line}"
            ) from None
        section = "default" if name is None else name
        for candidate in (section, f"{prefix}{section}"):
            if parser.has_section(candidate):
                is_there = True
                found |= dict(parser.items(candidate))
        services = found.get("services")
        if services and parser.has_section(f"services {services}"):
            found |= _nested(parser.get(f"services {services}", "s3", fallback=""))
    if name is not None and not is_there:
        raise AuthenticationError("the AWS profile does not exist", found=repr(name))
    return found


def _nested(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
