// Tables. `pagedTable` has all rows in memory, and draws one page. The sort order and the page are in the address.

import { count, counted } from "./format.js";
import { el } from "./dom.js";
import { change, linkWith } from "./state.js";

const PAGE = 100;

/** Return a column's heading. If the column can be sorted, the heading is a link, so that the keyboard reaches it. */
export function sortHead(column, sort, desc) {
  if (!column.sort) return el("th", { scope: "col", class: column.class }, column.name);
  const isIt = sort === column.sort;
  const down = isIt ? !desc : Boolean(column.downFirst);
  return el(
    "th",
    { scope: "col", class: column.class, "aria-sort": isIt ? (desc ? "descending" : "ascending") : undefined },
    el("a", { href: linkWith({ sort: column.sort, desc: down ? "1" : undefined, page: undefined, after: undefined }) }, column.name, isIt && el("span", { "aria-hidden": "true" }, desc ? " ↓" : " ↑")),
  );
}

/** Return a table. `columns` are {name, cell(row), class, sort}. Only screen readers get the caption. */
export function table(caption, columns, rows, { sort, desc, cls } = {}) {
  const body = rows.map((row) => {
    const cells = columns.map((column, at) => el(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : undefined, class: column.class, "data-name": column.name }, column.cell(row)));
    return el("tr", {}, cells);
  });
  return el(
    "div",
    { class: "scrolled", tabindex: 0, role: "region", "aria-label": caption },
    el("table", { class: cls }, el("caption", { class: "visually-hidden" }, caption), el("thead", {}, el("tr", {}, columns.map((column) => sortHead(column, sort, desc)))), el("tbody", {}, body)),
  );
}

const order = (one, other) => {
  if (one == null) return other == null ? 0 : 1;
  if (other == null) return -1;
  return typeof one === "string" && typeof other === "string" ? one.localeCompare(other) : Number(one) - Number(other);
};

/** Return page `params.page` of a table with many rows, sorted by `params.sort`. */
export function pagedTable(caption, columns, rows, params) {
  const by = columns.find((column) => column.sort && column.sort === params.sort);
  const value = by && (by.value ?? ((row) => row[by.sort]));
  const sorted = by ? [...rows].sort((one, other) => (params.desc ? -1 : 1) * order(value(one), value(other))) : rows;
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(params.page) || 1));
  const shown = sorted.slice((page - 1) * PAGE, page * PAGE);
  return [
    table(caption, columns, shown, { sort: params.sort, desc: params.desc }),
    pages > 1 &&
      pager(
        `${count((page - 1) * PAGE + 1)}–${count((page - 1) * PAGE + shown.length)} of ${counted(rows.length, "row")}`,
        page > 1 ? () => change({ page: page > 2 ? page - 1 : undefined }) : null,
        page < pages ? () => change({ page: page + 1 }) : null,
      ),
  ];
}

export function pager(text, back, on, names = ["Previous", "Next"]) {
  return el(
    "div",
    { class: "pager" },
    el("button", { type: "button", "data-key": "p", disabled: !back, onclick: back ?? (() => {}) }, `← ${names[0]}`),
    el("span", {}, text),
    el("button", { type: "button", "data-key": "n", disabled: !on, onclick: on ?? (() => {}) }, `${names[1]} →`),
  );
}
