// The records of the range, by time or by offset, one page at a time. The server returns the cursor of the next page.

import { asker, isAborted, shownProblem } from "./api.js";
import { announce, el, put } from "./dom.js";
import { Filters, filtersOf } from "./filters.js";
import { bytes, counted } from "./format.js";
import { idOf, recordRow, recordTable, wholeRecord } from "./record_rows.js";
import { change } from "./state.js";
import { pager } from "./table.js";

const PAGE = 100;

export function recordsPart(root, topic) {
  const ask = asker();
  const filters = new Filters();
  const results = el("div", { class: "results" });
  let shown = null;
  let latest = null;
  let open = { id: null, stop: null, node: null };
  put(root, filters.root, results);

  function closeRecord() {
    open.stop?.();
    open.node?.remove();
    results.querySelector("[aria-expanded=true]")?.setAttribute("aria-expanded", "false");
    open = { id: null, stop: null, node: null };
  }

  /** Open the record that the address names: below its row, or above the table if it is on another page. */
  function openRecord(params) {
    if (params.record === (open.id ?? undefined)) return;
    closeRecord();
    if (!params.record) return;
    const [partition, offset] = params.record.split(":");
    const close = () => {
      const button = results.querySelector("[aria-expanded=true]");
      change({ record: undefined });
      button?.focus();
    };
    const detail = wholeRecord({ partition, offset }, topic.wanted, filtersOf(params), close);
    open = { id: params.record, ...detail };
    const row = [...results.querySelectorAll("tr[data-id]")].find((one) => one.dataset.id === params.record);
    if (row) {
      row.after(detail.node);
      row.querySelector("button").setAttribute("aria-expanded", "true");
      return;
    }
    open.node = el("table", { class: "records alone" }, el("tbody", {}, detail.node));
    results.prepend(open.node);
  }

  function draw(found, params) {
    closeRecord();
    if (found.records.length === 0) {
      const searched = ["grep", "key", "header", "where"].some((name) => params[name]);
      const where = params.start === undefined && params.end === undefined ? "in this topic" : "in this range";
      const on = found.next && el("button", { type: "button", "data-key": "n", onclick: () => change({ after: found.next, record: undefined }) }, "Search on");
      put(results, found.next ? el("p", { class: "empty" }, "Nothing found so far: the search has not read everything yet. ", on) : el("p", { class: "empty" }, searched ? `No record ${where} matches the search.` : `There are no records ${where}.`), scanned(found));
    } else {
      const { node, body } = recordTable(`Records of ${topic.wanted.topic}`);
      const toggle = (record) => change({ record: open.id === idOf(record) ? undefined : idOf(record) });
      body.append(...found.records.map((record) => recordRow(record, params, toggle)));
      const back = params.after ? () => history.back() : null;
      const on = found.next ? () => change({ after: found.next, record: undefined }) : null;
      put(results, node, (back || on) && pager(found.next && found.records.length < PAGE ? `${counted(found.records.length, "record")} so far` : counted(found.records.length, "record"), back, on), scanned(found));
    }
    announce(`${counted(found.records.length, "record")} shown`);
  }

  const scanned = (found) =>
    found.scanned_bytes ? el("p", { class: "quiet small" }, `${counted(found.scanned_records ?? 0, "record")} and ${bytes(found.scanned_bytes)} read for this page.`, (found.notes ?? []).map((note) => ` ${note}.`)) : null;

  async function update(params) {
    latest = params;
    filters.update(params);
    const wanted = { ...topic.wanted, ...filtersOf(params), start: params.start, end: params.end, after: params.after, limit: PAGE };
    const key = JSON.stringify([wanted, params.tz]);
    if (key !== shown) {
      shown = key;
      if (!results.childElementCount) put(results, el("p", { class: "quiet" }, "Loading …"));
      results.setAttribute("aria-busy", "true");
      try {
        draw(await ask("records", wanted), params);
      } catch (error) {
        if (isAborted(error)) return;
        closeRecord();
        put(results, shownProblem(error, () => { shown = null; update(latest); }));
      }
      results.removeAttribute("aria-busy");
    }
    openRecord(latest); // It may have changed during the request.
  }

  return { update, close: () => { ask.stop(); closeRecord(); } };
}
