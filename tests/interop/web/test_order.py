"""What the page shows does not depend on which of its requests is answered first, or on what a person does meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import tidelog
from tests.interop.web.browser import Visitor, running_ui
from tests.interop.web.written import HOUR_MS, MINUTE_MS, T
from tests.patience import PATIENCE_S
from tidelog.clock import ManualClock

RANGE = f"start={T + 9 * HOUR_MS}&end={T + 9 * HOUR_MS + HOUR_MS // 4}"

BULK = re.compile("^Records over time: 51 records from 2026-11-19 00:00:00 to 2026-11-19 01")
ALL_TIMES = "All are from 1970-01-01 00:00 to 2036-11-19 00:00."


class Held:
    """Requests that are not answered yet."""

    def __init__(self, page: Page, is_held: Callable[[str], bool]) -> None:
        self.is_held = is_held
        self.routes: list[Route] = []
        self._page = page
        page.route("**/api/**", self._handle)

    def _handle(self, route: Route) -> None:
        if self.is_held(route.request.url):
            self.routes.append(route)
        else:
            route.continue_()

    def wait(self, number: int = 1) -> None:
        """Wait until so many requests are held."""
        until = monotonic() + PATIENCE_S
        while len(self.routes) < number:
            assert monotonic() < until, f"{len(self.routes)} of {number} requests were sent"
            self._page.wait_for_timeout(20)

    def release(self) -> None:
        """Let the requests be answered, the last one first."""
        self.is_held = lambda url: False
        while self.routes:
            self.routes.pop().continue_()


@contextmanager
def held(visitor: Visitor, is_held: Callable[[str], bool], view: str | None = None) -> Iterator[Held]:
    """Hold requests, and go to a view if one is given."""
    found = Held(visitor.page, is_held)
    if view is not None:
        visitor.page.goto("about:blank")
        visitor.page.goto(f"{visitor.root}#/{view}")
    yield found
    visitor.page.unroute("**/api/**")


def asks_for(name: str) -> Callable[[str], bool]:
    return lambda url: f"/api/{name}?" in url or url.endswith(f"/api/{name}")


def is_extent(url: str) -> bool:
    return "/api/counts?" in url and "start=" not in url


def is_chart(url: str) -> bool:
    return "/api/counts?" in url and "start=0" in url


ORDERS = {
    "the chart first": is_extent,
    "the extent first": is_chart,
    "both late": lambda url: "/api/counts?" in url,
    "all at once": lambda url: False,
}


def chart_of(page: Page, text: re.Pattern[str]) -> None:
    expect(page.get_by_role("img", name="Records over time")).to_have_attribute("aria-label", text)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("given", ["", f"&start={T}&end={T + HOUR_MS}", "&partitions=0"])
def test_the_axis_is_the_same_for_every_order_of_responses(visitor: Visitor, order: str, given: str) -> None:
    page = visitor.page
    summary = page.get_by_text(re.compile("53 records · .* · 1970-01-01 00:00 to 2036-11-19 00:00"))
    with held(visitor, ORDERS[order], f"topic?topic=strays{given}") as late:
        if order == "the chart first":
            chart_of(page, re.compile("^Records over time: 5"))
            late.wait()
        elif order == "the extent first":
            expect(summary).to_be_visible()
        elif order == "both late":
            late.wait(2)
        late.release()
        for _ in range(2):  # It stays so.
            chart_of(page, BULK)
            expect(page.locator(".timeline")).to_contain_text(ALL_TIMES)
            expect(summary).to_be_visible()
            visitor.settle()


@pytest.mark.parametrize("order", ORDERS)
def test_times_in_the_address_are_the_axis_until_they_are_removed(visitor: Visitor, order: str) -> None:
    page = visitor.page
    with held(visitor, ORDERS[order], f"topic?topic=strays&from=0&to={T + HOUR_MS}") as late:
        if order == "the chart first":
            late.wait()
            chart_of(page, re.compile("^Records over time: 52 records from 1970"))
        late.release()
        chart_of(page, re.compile("^Records over time: 52 records from 1970"))
        expect(page.locator(".facts-line")).to_contain_text("1970-01-01 00:00 to 2036-11-19 00:00")
        expect(page.get_by_role("button", name="Show all times")).to_have_count(0)
        page.get_by_role("button", name="All", exact=True).click()
        chart_of(page, BULK)


def test_a_topic_that_grows_meanwhile_has_its_new_records_on_the_axis(browser: Browser, tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path / "data", clock=ManualClock(T), **{"log.retention.ms": -1}) as broker:
        broker.create_topic("grows", 1)
        for time in (0, *(T + number * MINUTE_MS for number in range(50))):
            broker.produce("grows", "x", timestamp_ms=time)
        with running_ui(tmp_path / "data") as address:
            visitor = Visitor(browser, address)
            with held(visitor, is_extent, "topic?topic=grows") as late:
                chart_of(visitor.page, re.compile("^Records over time: 51 records from 1970"))
                late.wait()
                broker.produce("grows", "x", timestamp_ms=T + 3 * HOUR_MS)
                broker.produce("grows", "x", timestamp_ms=T + 3 * HOUR_MS)
                late.release()
                chart_of(visitor.page, re.compile("^Records over time: 52 records from 2026-11-19 00:00:00 to 2026-11-19 03"))
            visitor.close()


@pytest.mark.parametrize("is_chart_first", [False, True])
def test_the_page_says_that_the_times_of_all_records_are_unknown(visitor: Visitor, is_chart_first: bool) -> None:
    page = visitor.page
    note = page.get_by_text("Some records may be outside the time axis: the log is damaged")
    error = {"what": "the log is damaged", "where": None, "found": None, "expected": None}
    with held(visitor, asks_for("counts"), "topic?topic=strays") as late:
        late.wait(2)
        (extent,) = [route for route in late.routes if is_extent(route.request.url)]
        late.routes.remove(extent)
        if is_chart_first:
            late.release()
            chart_of(page, re.compile("^Records over time: 52 records from 1970"))
        extent.fulfill(status=409, json={"error": error})
        expect(note).to_be_visible()
        late.release()
        chart_of(page, re.compile("^Records over time: 52 records from 1970"))
        visitor.settle()
        chart_of(page, re.compile("^Records over time: 52 records from 1970"))
    visitor.faults = [fault for fault in visitor.faults if "409" not in fault]


@pytest.mark.parametrize("counts", [{}, {"counts": [0]}], ids=["some", "none"])
@pytest.mark.parametrize("in_time", [False, True])
def test_the_page_says_that_there_was_no_time_for_all_records(
    visitor: Visitor, in_time: bool, counts: dict[str, list[int]]
) -> None:
    with held(visitor, is_extent, "topic?topic=strays") as late:
        late.wait()
        extent = late.routes.pop()
        response = extent.fetch()
        extent.fulfill(response=response, json=response.json() | counts | {"in_time": in_time})
        late.release()
        visitor.settle()
        note = visitor.page.get_by_text("Some records may be outside the time axis: the server ran out of time")
        expect(note).to_have_count(0 if in_time else 1)


def test_an_open_range_has_the_records_beyond_the_last_batch(visitor: Visitor) -> None:
    with held(visitor, is_extent, f"topic?topic=strays&start={T}") as late:
        expect(visitor.page.locator("output.total strong")).to_have_text("52")
        late.release()
    visitor.open("topic?topic=strays&end=1000&part=cut")
    expect(visitor.page.locator("output.total strong")).to_have_text("1")
    expect(visitor.page.locator(".statement strong").first).to_have_text("1 record")


def test_the_answer_for_a_range_that_was_removed_is_not_shown(visitor: Visitor) -> None:
    page = visitor.page
    with held(visitor, asks_for("cut"), f"topic?topic=orders&part=cut&{RANGE}") as late:
        late.wait()
        page.get_by_role("button", name="All", exact=True).click()
        expect(page.get_by_text("Choose a range above")).to_be_visible()
        late.release()
        visitor.settle()
        expect(page.locator(".statement")).to_have_count(0)
        expect(page.get_by_text("Choose a range above")).to_be_visible()


def test_rows_are_sorted_as_the_address_says_when_they_arrive(visitor: Visitor) -> None:
    page = visitor.page
    view = f"topic?topic=orders&part=cut&{RANGE}"
    with held(visitor, asks_for("cut"), view) as late:
        late.wait()
        page.evaluate("hash => { location.hash = hash; }", f"#/{view}&sort=partition&desc=1")
        expect(page).to_have_url(re.compile("sort=partition"))
        late.release()
        rows = page.get_by_role("region", name="The cut by offsets").locator("tbody th")
        expect(rows.first).to_have_text("2")


def test_a_record_is_opened_though_its_page_is_late(visitor: Visitor) -> None:
    page = visitor.page
    view = f"topic?topic=orders&{RANGE}"
    with held(visitor, asks_for("records"), view) as late:
        late.wait()
        page.evaluate("hash => { location.hash = hash; }", f"#/{view}&record=1:193")
        expect(page.locator(".record-detail h2")).to_be_visible()
        late.release()
        expect(page.locator("table.records tr[data-id]").first).to_be_visible()
        visitor.settle()
        expect(page.locator(".record-detail h2")).to_contain_text("offset 193")
    page.keyboard.press("Escape")
    expect(page.locator(".record-detail")).to_have_count(0)


def test_a_record_of_a_link_opens_again_after_it_was_closed(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("topic?topic=orders&partitions=1&record=1:3")
    for _ in range(2):
        expect(page.locator(".record-detail h2")).to_contain_text("offset 3")
        page.keyboard.press("Escape")
        expect(page.locator(".record-detail")).to_have_count(0)
        page.get_by_role("button", name="Offset 3 of partition 1: show the record").click()


def test_a_value_is_shown_as_the_pressed_button_says(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("topic?topic=hostile&record=0:0")
    value = page.get_by_role("group", name="Value of offset 0", exact=True)
    text = value.inner_text()
    with held(visitor, asks_for("record")) as late:
        buttons = page.get_by_role("group", name="Value of offset 0 as")
        buttons.get_by_role("button", name="Hex").click()
        late.wait()
        buttons.get_by_role("button", name="Text").click()
        late.release()
        expect(value).to_have_text(text)
        visitor.settle()
        expect(value).to_have_text(text)


def test_the_first_view_is_that_of_the_address_when_the_sources_are_known(visitor: Visitor) -> None:
    page = visitor.page
    with held(visitor, asks_for("sources"), "topics") as late:
        late.wait()
        page.evaluate("location.hash = '#/groups'")
        expect(page).to_have_url(re.compile("groups"))
        late.release()
        expect(page.get_by_role("link", name="billing")).to_be_visible()
        expect(page.locator("main h1")).to_have_text("Groups")


def test_a_time_that_was_typed_does_not_change_another_view(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("topic?topic=orders")
    with held(visitor, asks_for("time")) as late:
        page.get_by_label("From", exact=True).fill("2026-11-19 10:00")
        page.keyboard.press("Enter")
        late.wait()
        page.get_by_role("link", name="Groups").click()
        expect(page.get_by_role("link", name="billing")).to_be_visible()
        late.release()
        visitor.settle()
        assert "start" not in page.url
