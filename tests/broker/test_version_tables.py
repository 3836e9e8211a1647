"""What each version of an API changed stands once, in `wire/messages`; what is served, at the end of a file of `broker/apis`."""

from __future__ import annotations

import re
import sys

import pytest

from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api

TABLE = re.compile(r"^\| version \| what it changed \|\n\|---\|---\|\n((?:\|.*\|\n?)+)", re.MULTILINE)


def rows(doc: str) -> list[int]:
    """Return the versions that a module's table has rows of."""
    found = TABLE.search(doc)
    return [int(row.split("|")[1]) for row in found[1].splitlines()] if found else []


def messages_of(api: Api) -> str:
    """Return what the module of an API's messages says of itself."""
    return sys.modules[api.request.__module__].__doc__ or ""


def handler_of(api: Api) -> str:
    """Return what the module that answers an API says of itself."""
    return sys.modules[api.request.__module__.replace("wire.messages", "broker.apis")].__doc__ or ""


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.request.API_NAME)
def test_one_table_an_api(api: Api) -> None:
    doc = handler_of(api)
    # From 1 on each version changed something; a version 0 that needs words has a row, too.
    assert rows(messages_of(api)) in (list(range(api.request.VERSIONS[-1] + 1)), list(range(1, api.request.VERSIONS[-1] + 1)))
    assert api.request.VERSIONS == api.response.VERSIONS
    assert api.request.VERSIONS[0] <= api.served.first <= api.served.last <= api.request.VERSIONS[-1]
    assert doc.startswith(f"{api.request.API_NAME} ({api.request.API_KEY}): ")
    assert "| version |" not in doc and not re.search(r"[Vv]ersions? \d+ (?:to|and) \d+", doc)
