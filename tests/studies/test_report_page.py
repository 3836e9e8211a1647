"""The page: whole, escaped, with links that lead somewhere, and nothing from outside."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from studies.chapter import Chapter, Claim, Table, Verdict
from studies.report.page import render
from studies.report.verdicts import claims, count_verdicts
from tests.studies.report_samples import BARS, CELLS, CHAPTERS, CLAIMS, FACTS, FIRST, LINE, POINTS, SECOND
from tidelog.errors import InvalidArgumentError

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Reads a page, checks that what opens is closed, and collects what it holds."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.headings: list[int] = []
        self.texts: dict[str, str] = {}
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        assert "svg" in self.open, f"<{tag}/> is HTML only within an SVG"
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        where = self.open[-1] if self.open else ""
        self.texts[where] = self.texts.get(where, "") + data


@pytest.fixture(scope="module")
def html() -> str:
    return render(CHAPTERS, FACTS)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_claims_are_counted_and_not_their_cells() -> None:
    def cell(verdict: Verdict, statement: str = "it holds") -> Claim:
        return Claim("so", f"{verdict.value} here", verdict, statement)

    def counted(*column: Claim) -> list[tuple[Verdict, str, str]]:
        table = Table("t", "T", ("log", "claim"), tuple((f"log {n}", one) for n, one in enumerate(column)))
        chapter = Chapter("c", "C", "", "", (table,))
        assert sum(count_verdicts(chapter).values()) == len(list(claims(chapter)))
        return [(one.claim.verdict, one.claim.measured, one.anchor) for one in claims(chapter)]

    yes, no, partly = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.PARTLY
    assert counted(*[cell(yes)] * 12) == [(yes, "holds in 12 of 12 trials", "t.r1.c2")]
    assert counted(*[cell(no)] * 3) == [(no, "holds in 0 of 3 trials; not so for log 0: refuted here", "t.r1.c2")]
    assert counted(cell(yes), cell(no), cell(yes)) == [
        (partly, "holds in 2 of 3 trials; not so for log 1: refuted here", "t.r2.c2")
    ]
    assert [one[0] for one in counted(cell(yes, ""), cell(no, ""), cell(yes, "another"), cell(yes))] == [yes, no, yes, yes]


def test_the_page_is_a_whole_document(html: str, page: Page) -> None:
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert html.endswith("</html>\n")
    assert page.tags["h1"] == page.tags["main"] == 1
    assert page.tags["table"] >= 2 and page.tags["caption"] == page.tags["table"]
    assert all(later - before <= 1 for before, later in zip(page.headings, page.headings[1:], strict=False))


def test_ids_are_unique_and_links_lead_to_them(page: Page) -> None:
    assert [one for one, count in Counter(page.ids).items() if count > 1] == []
    links = {value for _, name, value in page.attributes if name == "href"}
    assert links and all(link.startswith("#") and link[1:] in page.ids for link in links)
    assert {f"#{part.id}" for chapter in CHAPTERS for part in chapter.parts} <= links
    named = {one for _, name, value in page.attributes if name == "aria-labelledby" for one in value.split()}
    assert named <= set(page.ids)


def test_nothing_comes_from_outside(html: str, page: Page) -> None:
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & page.tags.keys()
    assert not [one for one in page.attributes if one[1] in ("src", "srcset", "xlink:href") or one[1].startswith("on")]
    assert not [value for _, name, value in page.attributes if name == "style" and "url(" in value]
    assert {value for _, _, value in page.attributes if "url(" in value} <= {f"url(#{one})" for one in page.ids}
    style = page.texts["style"]
    assert not re.search(r"url\(|@import|@font-face|expression", style)
    assert "http" not in html


def test_text_is_escaped(html: str) -> None:
    assert "<script" not in html and "<b>" not in html
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in html
    assert "Every kind of cell &amp; &lt;markup&gt;" in html
    assert "<code>find_offset</code>" in html


def test_every_claim_is_in_the_summary_and_in_its_table(html: str, page: Page) -> None:
    found = list(claims(SECOND))
    assert [(one.row, one.column) for one in found] == [
        ("mirroring", "option 1"),
        ("mirroring", "option 2"),
        ("retention", "option 1"),
        ("retention", "option 2"),
    ]
    assert count_verdicts(SECOND) == dict.fromkeys(Verdict, 1)
    assert count_verdicts(FIRST) == {}
    for one in found:
        assert one.anchor in page.ids
        doubtful = one.claim.verdict in (Verdict.REFUTED, Verdict.PARTLY)
        assert html.count(f'href="#{one.anchor}"') == 1 + doubtful
        assert html.count(one.claim.claimed) >= 2 and html.count(one.claim.measured) >= 2
    for verdict in Verdict:
        assert f"1 {verdict.value}</span>" in html and f"</span> {verdict.value}</span>" in html


def test_a_small_plots_numbers_are_a_table_too(html: str) -> None:
    assert html.count("The numbers</summary>") == sum(
        sum(len(series.xs) for series in part.series) <= 60
        for chapter in CHAPTERS
        for part in chapter.parts
        if hasattr(part, "series")
    )
    assert f"{LINE.id}-numbers" not in html


def test_rows_that_begin_alike_share_their_first_cell() -> None:
    rows = (("a", 1), ("a", 2), ("b", 3), ("a", 4), (5, 5), (5, 6))
    html = render([Chapter("c", "C", "", "", (Table("t", "T", ("x", "y"), rows),))], FACTS)
    assert re.findall(r'<th scope="row(?:group)?"(?: rowspan="(\d)")? class="\w+"><span>(\w)</span></th>', html) == [
        ("2", "a"),
        ("", "b"),
        ("", "a"),
        ("", "5"),
        ("", "5"),
    ]
    assert html.count("<td ") == len(rows)


def test_facts_and_assumptions_are_there(html: str) -> None:
    for text in (
        "2025-11-22 00:00 UTC",
        "3.11.2",
        "4.0.1",
        "181 s",
        *(one.replace("&", "&amp;") for one in FIRST.assumptions + CELLS.assumptions),
    ):
        assert text in html


def test_the_same_chapters_give_the_same_bytes(html: str) -> None:
    assert render(CHAPTERS, FACTS) == html


@pytest.mark.parametrize(
    "wrong",
    [
        (FIRST, dataclasses.replace(SECOND, name="first")),
        (FIRST, dataclasses.replace(SECOND, parts=(CLAIMS, BARS))),
        (dataclasses.replace(FIRST, parts=(POINTS, POINTS)),),
        (dataclasses.replace(FIRST, parts=(dataclasses.replace(CELLS, id="two words"),)),),
        (dataclasses.replace(FIRST, parts=(dataclasses.replace(CELLS, id='"'),)),),
    ],
)
def test_ids_that_do_not_do_are_refused(wrong: tuple[Chapter, ...]) -> None:
    with pytest.raises(InvalidArgumentError):
        render(wrong, FACTS)


def test_a_report_of_nothing_is_a_page() -> None:
    Page(render([], FACTS))
    Page(render([Chapter("none", "None", "", "", ())], FACTS))
