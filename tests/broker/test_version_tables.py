"""What each version of an API changed stands once, in `wire/messages`; what is served, at the top of a file of `broker/apis`."""

from __future__ import annotations

import re
import sys

import pytest

from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.wire.fields import Versions

TABLE = re.compile(r"^\| version \| what it changed \|\n\|---\|---\|\n((?:\|.*\|\n?)+)", re.MULTILINE)


def rows(doc: str) -> list[int]:
    """Return the versions that a module's table has rows of."""
    found = TABLE.search(doc)
    return [int(row.split("|")[1]) for row in found[1].splitlines()] if found else []


def messages_of(api: Api) -> str:
    """Return what the module of an API's messages says of itself."""
    return sys.modules[api.request.__module__].__doc__ or ""


def handler_of(api: Api) -> tuple[str, str]:
    """Return the name of the module that answers an API, and what it says of itself."""
    name = api.request.__module__.replace("wire.messages", "broker.apis")
    return name, sys.modules[name].__doc__ or ""


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.request.API_NAME)
def test_one_table_an_api(api: Api) -> None:
    name, doc = handler_of(api)
    module = sys.modules[name]
    # From 1 on each version changed something; a version 0 that needs words has a row, too.
    assert rows(messages_of(api)) in (list(range(api.request.VERSIONS[-1] + 1)), list(range(1, api.request.VERSIONS[-1] + 1)))
    assert api.request.VERSIONS == api.response.VERSIONS
    assert api.served is module.SERVED and isinstance(module.SERVED, Versions)
    assert api.request.VERSIONS[0] <= api.served.first <= api.served.last <= api.request.VERSIONS[-1]
    assert doc.startswith(f"{api.request.API_NAME} ({api.request.API_KEY}): ")
    assert "| version |" not in doc and not re.search(r"[Vv]ersions? \d+ (?:to|and) \d+", doc)
