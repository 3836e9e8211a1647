"""What the page says while the server has not read everything yet."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Route, expect

from tests.interop.web.browser import Visitor, running_ui
from tests.web.leaderless import Leaderless


def test_partitions_without_a_leader_are_named_and_requested_again(browser: Browser) -> None:
    with Leaderless() as broker, running_ui(broker.address) as address:
        visitor = Visitor(browser, address)
        page = visitor.page
        page.goto(f"{visitor.root}#/topics")
        expect(page.get_by_text("partitions not read: 1")).to_be_visible()
        page.goto(f"{visitor.root}#/topic?topic=t")
        facts = page.locator(".facts-line")
        expect(facts).to_contain_text("2 partitions · 10 records")
        expect(facts).to_contain_text("1 partition not read")
        broker.leaders[1] = 1
        facts.get_by_role("button", name="Try again").click()
        expect(facts).to_contain_text("2 partitions · 20 records")
        expect(facts).not_to_contain_text("not read")
        visitor.context.close()


def test_segments_are_requested_until_their_times_are_known(visitor: Visitor) -> None:
    page = visitor.page
    late: list[dict[str, Any]] = []

    def answer(route: Route) -> None:
        if len(late) == 2 or "start=" in route.request.url:  # of the time axis
            route.continue_()
            return
        found = route.fetch().json()
        late.append(found)
        for one in found["segments"]:
            one |= {"min_ms": None, "max_ms": None, "pending": True}
        route.fulfill(json=found | {"pending": True})

    page.route("**/api/segments*", answer)
    visitor.open("topic?topic=orders&part=segments")
    times = page.get_by_role("region", name="Segments").locator("tbody td.time")
    expect(times.first).to_contain_text("2026-11-19")
    assert len(late) == 2
