"""The report: chapters as one HTML file that needs nothing else, neither a network nor a script.

| module | owns |
|---|---|
| cells | a cell of a table as text: sizes, durations, numbers, claims |
| verdicts | the claims of a chapter, and their places in the report |
| axes | what an axis counts, and its ticks |
| plots | a plot as a figure of matplotlib, and that as SVG in the page |
| page | the page from chapters, by the templates beside it; ids are unique, and what is text is escaped |

Colours are the page's variables (`page.css`), so that plots follow the reader's light or dark scheme. No colour says anything
that is not also said by a word, a sign, a marker or a pattern of dashes. The same chapters and facts
give the same bytes. `page`, and what
draws, need Jinja2 and matplotlib; running studies does not.
"""
