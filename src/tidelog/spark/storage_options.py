"""Options and settings for object storage: a load's options, and the session's settings for Hadoop's own client.

The names are those of `tidelog.objects.settings`, including Hadoop's `fs.s3a.…`. Values are passed on with the address
(`ObjectAddress`), which does not show them. This module does not import PySpark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.objects.address import service_of, with_options
from tidelog.objects.settings import HADOOP_NAMES, option_name
from tidelog.sources.opening import in_storage


def storage_options(given: Mapping[str, str], path: str) -> dict[str, str]:
    """Return the subset of a load's options that configures the object storage of `path`."""
    part = in_storage(path)
    if part is None:
        return {}
    service = service_of(part)
    return {name: value for name, value in given.items() if option_name(name, service) is not None}


def with_storage(path: str, given: Mapping[str, str]) -> str:
    """Return a load's path combined with its options for object storage."""
    part = in_storage(path)
    return path if part is None else with_options(path, storage_options(given, path), part)


def with_settings(options: Mapping[str, str], settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return a load's options, merged with the session's settings if the load reads from S3. An option takes precedence over the
    same setting.
    """
    paths = (value for name, value in options.items() if name.lower() in ("path", "paths", "tier"))
    if not settings or not any("s3" in path for path in paths):
        return options
    named = {option_name(name, "s3") for name in options}
    return {name: value for name, value in settings.items() if option_name(name, "s3") not in named} | dict(options)


def settings_of(hadoop: Any) -> dict[str, str]:
    """Return the S3 settings of a Hadoop `Configuration` (a Java object), without Hadoop's defaults."""
    found = {}
    for name in HADOOP_NAMES:
        value = hadoop.get(name)
        if value and list(hadoop.getPropertySources(name) or ()) != ["core-default.xml"]:
            found[name] = str(value)
    return found
