"""The report: renders chapters as one self-contained HTML file, without network access or scripts.

| module | owns |
|---|---|
| cells | formats table cells: sizes, durations, numbers, claims |
| verdicts | the claims of a chapter, and where they appear in the report |
| axes | the unit of an axis, and its ticks |
| plots | draws plots with matplotlib, as SVG in the page |
| page | renders the page from chapters with the templates in this folder; ids are unique, and text is escaped |

Colours are the page's variables (`page.css`), so that plots follow the reader's light or dark scheme. No information is in the
colour alone: a word, a sign, a marker or a dash pattern always repeats it. The same chapters and facts give the same bytes.
`page` and the drawing code need Jinja2 and matplotlib; running studies does not.
"""
