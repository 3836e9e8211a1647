// The topics of a source: a search field, and a sorted table with pages.

import { asker, isAborted, shownProblem } from "./api.js";
import { announce, el, put } from "./dom.js";
import { bytes, count, counted, pointOf, time } from "./format.js";
import { change, linkTo } from "./state.js";
import { pager, table } from "./table.js";

const PAGE = 100;
const AGAIN_MS = 250; // If the server did not find all figures within its time limit, the topics are requested again.

const COLUMNS = [
  { name: "Topic", sort: "topic", class: "name", cell: (row) => [el("a", { href: linkTo("topic", { topic: row.topic }) }, row.topic), row.internal && el("span", { class: "mark" }, "internal"), row.notes?.length > 0 && el("span", { class: "mark bad" }, row.notes.join("; "))] },
  { name: "Partitions", sort: "partitions", downFirst: true, class: "number wide-only", cell: (row) => count(row.partitions) },
  { name: "Records", sort: "records", downFirst: true, class: "number", cell: (row) => count(row.records) },
  { name: "Size", sort: "bytes", downFirst: true, class: "number wide-only", cell: (row) => bytes(row.bytes) },
  { name: "First", class: "time wide-only", cell: (row) => time(row.first_ms, "minute") },
  { name: "Last", sort: "last_ms", downFirst: true, class: "time", cell: (row) => time(row.last_ms, "minute") },
];

export const topicsView = {
  key: () => "",
  open(root, params) {
    const ask = asker();
    const search = el("input", {
      type: "search", "data-search": true, placeholder: "Search topics", "aria-label": "Search topics", value: params.q ?? "", autocomplete: "off", spellcheck: "false",
      oninput: () => {
        clearTimeout(typed);
        typed = setTimeout(() => change({ q: search.value.trim(), after: undefined }, { replace: true }), 150);
      },
    });
    let typed = 0;
    let again = 0;
    const summary = el("span", { class: "quiet" });
    const results = el("div", {}, el("p", { class: "quiet" }, "Loading …"));
    put(root, el("div", { class: "bar" }, el("h1", {}, "Topics"), search, summary), results);

    async function update(now) {
      if (document.activeElement !== search) search.value = now.q ?? "";
      clearTimeout(again);
      const wanted = { source: now.source, q: now.q, sort: now.sort ?? "topic", desc: now.desc, after: now.after, limit: PAGE };
      results.setAttribute("aria-busy", "true");
      try {
        const found = await ask("topics", wanted);
        summary.textContent = [counted(found.total, "topic"), pointOf(found.point)].filter(Boolean).join(" · ");
        if (found.topics.length === 0) put(results, el("p", { class: "empty" }, now.q ? `No topic has “${now.q}” in its name.` : "There are no topics here yet."));
        else {
          const more = found.more ? () => change({ after: wanted.sort === "topic" && !now.desc ? found.topics.at(-1).topic : Number(now.after ?? 0) + found.topics.length }) : null;
          const back = now.after ? () => history.back() : null;
          put(results, table("Topics", COLUMNS, found.topics, { sort: wanted.sort, desc: now.desc, cls: "topics" }), (more || back) && pager(counted(found.topics.length, "topic"), back, more));
        }
        if (found.pending) again = setTimeout(() => update(now), AGAIN_MS);
        else if (now.q) announce(`${counted(found.total, "topic")} found`);
      } catch (error) {
        if (isAborted(error)) return;
        put(results, shownProblem(error, () => update(now)));
      }
      results.removeAttribute("aria-busy");
    }
    return { title: "Topics – Tidelog", update, close: () => { clearTimeout(typed); clearTimeout(again); ask.stop(); } };
  },
};
