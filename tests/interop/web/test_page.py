"""What people do on the page: find a topic, drag a range, read its records, follow new ones, share a link, use keys only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, expect

import tidelog
from tests.interop.web.browser import Visitor, running_ui
from tests.interop.web.written import HOUR_MS, T

RANGE = f"start={T + 9 * HOUR_MS}&end={T + 9 * HOUR_MS + HOUR_MS // 4}"


def counted(folder: Path, start: int, end: int, *options: str) -> int:
    """Return what `tidelog cat --count` says."""
    command = [sys.executable, "-m", "tidelog", "cat", str(folder), "orders", "--count", "--from", str(start), "--to", str(end)]
    lines = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout.splitlines()
    return int(lines[-1].split()[-1].replace(",", ""))


def total(visitor: Visitor) -> int:
    """Return the number of records that the page says that the range has."""
    shown = visitor.page.locator("output.total strong")
    expect(shown).to_be_visible()
    return int(shown.inner_text().replace(",", ""))


def range_of(visitor: Visitor) -> tuple[int, int]:
    found = re.search(r"[?&]start=(-?\d+)&end=(-?\d+)", visitor.page.url)
    assert found, visitor.page.url
    return int(found[1]), int(found[2])


def test_a_range_without_records_has_none(visitor: Visitor) -> None:
    for bound in (f"start={T + 400 * 24 * HOUR_MS}", "end=1000"):
        visitor.open(f"topic?topic=orders&{bound}")
        assert total(visitor) == 0


def test_a_topic_is_found_and_a_dragged_range_has_the_records_that_cat_counts(visitor: Visitor, folder: Path) -> None:
    page = visitor.page
    assert "token" not in page.url
    page.get_by_label("Search topics").fill("ord")
    expect(page.locator("table.topics tbody tr")).to_have_count(1)
    page.get_by_role("link", name="orders").click()
    visitor.settle()
    box = page.locator(".plots").bounding_box()
    assert box
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 560, box["y"] + 60, steps=5)
    page.mouse.move(box["x"] + 640, box["y"] + 160, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile("start="))
    visitor.settle()
    start, end = range_of(visitor)
    assert T < start < end < T + 24 * HOUR_MS
    assert total(visitor) == counted(folder, start, end) > 100
    times = page.locator("table.records td.time").all_inner_texts()
    assert len(times) == 100
    assert times == sorted(times)
    page.keyboard.press("n")
    expect(page.locator("table.records td.time").first).not_to_have_text(times[0])
    visitor.settle()
    assert page.locator("table.records td.time").first.inner_text() >= times[-1]


def test_a_few_wrong_clocks_do_not_shrink_the_axis(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("topic?topic=strays")
    chart = page.get_by_role("img", name="Records over time")
    expect(chart).to_have_attribute(
        "aria-label", re.compile("^Records over time: 51 records from 2026-11-19 00:00:00 to 2026-11-19 01")
    )
    expect(page.locator(".timeline")).to_contain_text("All are from 1970-01-01 00:00 to 2036-11-19 00:00.")
    expect(page.get_by_text(re.compile("53 records · .* · 1970-01-01 00:00 to 2036-11-19 00:00"))).to_be_visible()
    page.get_by_role("button", name="Show all times").click()
    expect(chart).to_have_attribute("aria-label", re.compile("^Records over time: 53 records"))
    page.get_by_role("button", name="All", exact=True).click()
    expect(chart).to_have_attribute("aria-label", re.compile("^Records over time: 51 records"))


def test_times_as_people_say_them_in_a_chosen_zone(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("topic?topic=orders&tz=Europe/Berlin")
    page.get_by_label("From", exact=True).fill("2026-11-19 10:00")
    page.get_by_label("To", exact=True).fill("+15m")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(RANGE))
    expect(page.get_by_label("From", exact=True)).to_have_value("2026-11-19 10:00:00")
    page.get_by_label("From", exact=True).fill("half past nine")
    visitor.faults.clear()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("half past nine")
    visitor.faults = [fault for fault in visitor.faults if "400" not in fault]


def test_searches_find_what_cat_finds(visitor: Visitor, folder: Path) -> None:
    page = visitor.page
    visitor.open(f"topic?topic=orders&{RANGE}")
    page.get_by_label("Key", exact=True).fill("till-3")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("key=till-3"))
    visitor.settle()
    start, end = range_of(visitor)
    expect(page.locator("table.records tr[data-id]")).to_have_count(counted(folder, start, end, "--key", "till-3"))
    page.get_by_label("Key", exact=True).fill("")
    page.get_by_label("Search", exact=True).fill("nothing has this")
    page.keyboard.press("Enter")
    expect(page.locator(".results .empty")).to_contain_text("No record in this range")


def test_a_link_restores_the_view_and_back_leads_back(visitor: Visitor, browser: Browser, address: str) -> None:
    page = visitor.page
    visitor.open(f"topic?topic=orders&{RANGE}")
    page.locator("table.records tr[data-id] button").nth(3).click()
    expect(page.locator(".record-detail h2")).to_be_visible()
    visitor.settle()
    offset = page.locator(".record-detail h2").inner_text()
    rows = page.locator("table.records tr[data-id]").all_inner_texts()
    other = Visitor(browser, address)
    other.open(page.url.partition("#/")[2])
    expect(other.page.locator(".record-detail h2")).to_have_text(offset)
    other.settle()
    assert other.page.locator("table.records tr[data-id]").all_inner_texts() == rows
    other.close()
    page.get_by_role("link", name="Retention").click()
    expect(page.get_by_role("region", name="When segments are deleted")).to_be_visible()
    page.go_back()
    expect(page.locator(".record-detail h2")).to_have_text(offset)
    page.go_back()
    expect(page.locator(".record-detail")).to_have_count(0)


def test_a_look_up_is_told_step_by_step(visitor: Visitor, folder: Path) -> None:
    visitor.open(f"topic?topic=orders&part=lookup&at={T + 9 * HOUR_MS}&lookup_partition=1")
    with tidelog.LogDir(folder).log("orders", 1) as log:
        expected = tidelog.find_offset(log, T + 9 * HOUR_MS)
    assert expected is not None
    expect(visitor.page.locator(".answer a")).to_have_text(f"offset {expected.offset}")
    titles = visitor.page.locator(".steps h2").all_inner_texts()
    assert [title.partition(" ")[2] for title in titles] == ["Segments", "Time index", "Offset index", "Batches", "Record"]


def test_the_cut_by_offsets_adds_up(visitor: Visitor, folder: Path) -> None:
    visitor.open(f"topic?topic=orders&part=cut&{RANGE}")
    statement = visitor.page.locator(".statement")
    expect(statement).to_be_visible()
    exact, found, lost = (int(text.split()[0].replace(",", "")) for text in statement.locator("strong").all_inner_texts())
    assert exact == found + lost == counted(folder, *range_of(visitor))
    assert lost > 0


def test_the_other_parts_have_their_rows(visitor: Visitor) -> None:
    page = visitor.page
    visitor.open("topic?topic=orders&part=retention")
    expect(page.get_by_role("region", name="When segments are deleted").locator("tbody tr").first).to_contain_text("retention.ms")
    visitor.open("topic?topic=orders&part=segments")
    expect(page.get_by_role("region", name="Segments").locator("tbody tr").first).to_contain_text("2026-11-19")
    visitor.open(f"topic?topic=orders&part=export&{RANGE}")
    expect(page.get_by_role("group", name="Command line")).to_contain_text("tidelog cat")
    visitor.open("groups")
    page.get_by_role("link", name="billing").click()
    expect(page.locator("main tbody tr")).to_have_count(3)


def test_the_export_has_the_records_that_are_seen(visitor: Visitor, folder: Path) -> None:
    visitor.open(f"topic?topic=orders&part=export&{RANGE}")
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("link", name="Download as JSON Lines").click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(lines) == counted(folder, *range_of(visitor))


def test_a_live_tail_shows_a_new_record_of_brokers(browser: Browser) -> None:
    with tidelog.Broker() as broker:
        broker.create_topic("live", 2)
        broker.produce("live", "old")
        with running_ui(broker.bootstrap_servers) as address:
            visitor = Visitor(browser, address)
            visitor.open("topic?topic=live&part=tail")
            expect(visitor.page.get_by_text("0 new records")).to_be_visible()
            for number in range(3):
                broker.produce("live", f"new {number}", partition=number % 2)
                expect(visitor.page.locator("table.records td.value").first).to_have_text(f"new {number}")
            expect(visitor.page.get_by_text("3 new records")).to_be_visible()
            expect(visitor.page.get_by_text("old", exact=True)).to_have_count(0)
            visitor.close()


def test_keys_are_enough(visitor: Visitor) -> None:
    page = visitor.page
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(page.locator("table.topics tbody tr")).to_have_count(1)
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "orders":
            break
    page.keyboard.press("Enter")
    axis = page.get_by_role("group", name="Time axis")
    expect(axis).to_be_visible()
    visitor.settle()  # Until it has records, the axis has no times that a key could choose.
    axis.focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("start="))
    first = range_of(visitor)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    expect(page).not_to_have_url(re.compile(f"start={first[0]}&"))
    page.keyboard.press("z")
    expect(page).to_have_url(re.compile("from="))
    visitor.settle()
    page.keyboard.press("3")
    expect(page.locator(".steps li").first).to_be_visible()
    page.keyboard.press("1")
    page.locator("table.records tr[data-id] button").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".record-detail h2")).to_be_visible()
    visitor.settle()
    page.keyboard.press("Escape")
    expect(page.locator(".record-detail")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
