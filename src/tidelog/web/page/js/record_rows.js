// Rows of records: time, partition, offset, key, value. An open record is shown in full below its row.

import { address, asker, isAborted, shownProblem } from "./api.js";
import { el, put } from "./dom.js";
import { bytes, count, time } from "./format.js";
import { preview, seen, whole } from "./text.js";

const COLUMNS = [
  ["Time", "time"],
  ["Partition", "number partition"],
  ["Offset", "number offset"],
  ["Key", "key"],
  ["Value", "value"],
];

const TYPES = { 0: "CreateTime", 1: "LogAppendTime" };

export const idOf = (record) => `${record.partition}:${record.offset}`;

export function recordTable(caption, keyed = true) {
  const body = el("tbody", {});
  const head = COLUMNS.map(([name, cls]) => el("th", { scope: "col", class: cls }, name));
  const node = el("div", { class: "scrolled", tabindex: keyed ? 0 : undefined, role: "region", "aria-label": caption }, el("table", { class: "records" }, el("caption", { class: "visually-hidden" }, caption), el("thead", {}, el("tr", {}, head)), body));
  return { node, body };
}

/** Return a record's row. A click on the row or its offset calls `open` with the record. */
export function recordRow(record, params, open) {
  const button = el("button", { type: "button", class: "offset-button", "aria-expanded": "false", "aria-label": `Offset ${record.offset} of partition ${record.partition}: show the record` }, count(record.offset));
  const row = el(
    "tr",
    { "data-id": idOf(record) },
    el("td", { class: "time" }, time(record.timestamp_ms)),
    el("td", { class: "number partition" }, String(record.partition)),
    el("td", { class: "number offset" }, button),
    el("td", { class: "key" }, preview(record.key, params.key_decode)),
    el("td", { class: "value" }, preview(record.value, params.decode)),
  );
  row.addEventListener("click", (event) => {
    if (String(getSelection()) && !event.target.closest("button")) return;
    open(record, row);
  });
  return row;
}

function headersOf(record) {
  const headers = record.headers ?? [];
  if (!headers.length) return null;
  const items = headers.map(({ key, value }) => [el("dt", {}, el("bdi", {}, seen(key))), el("dd", {}, preview(value))]);
  return el("section", {}, el("h3", {}, "Headers"), el("dl", { class: "facts headers" }, items));
}

function batchOf(batch) {
  const facts = [
    `Offsets ${count(batch.base_offset)} to ${count(batch.last_offset)}, ${bytes(batch.bytes)} at position ${count(batch.position)} of ${batch.file.split("/").slice(-2).join("/")}`,
    `format ${batch.format}`,
    batch.codec !== "none" && batch.codec,
    batch.transactional && "transactional",
    batch.producer_id !== null && Number(batch.producer_id) >= 0 && `producer ${batch.producer_id}`,
  ];
  return el("section", {}, el("h3", {}, "Batch"), el("p", { class: "quiet small" }, facts.filter(Boolean).join(", ")));
}

/** Return a row that requests and shows the whole record. `close()` aborts the request. */
export function wholeRecord(record, wanted, filters, close) {
  const ask = asker();
  const place = { ...wanted, partition: record.partition, offset: record.offset };
  const bytesOf = async (name) => (await ask("record", { ...place, decode: "hex", key_decode: "hex" })).record[name];
  const room = el("td", { colspan: COLUMNS.length }, el("p", { class: "quiet" }, "Loading …"));
  const node = el("tr", { class: "record-detail" }, room);
  const load = async () => {
    try {
      const { record: found, batch } = await ask("record", { ...place, decode: filters.decode, key_decode: filters.key_decode });
      const field = (name, value) =>
        el(
          "section", {},
          el("h3", {}, name, " ", value.kind !== "null" && el("span", { class: "quiet" }, bytes(value.size)), value.size > 0 && [" ", el("a", { href: address("bytes", { ...place, part: name.toLowerCase() }), download: true, "aria-label": `Download the ${name.toLowerCase()}` }, "Download")]),
          whole(value, `${name} of offset ${record.offset}`, () => bytesOf(name.toLowerCase())),
        );
      put(
        room,
        el("div", { class: "detail-head" }, el("h2", {}, `Partition ${record.partition}, offset ${count(record.offset)}`), el("span", { class: "quiet" }, `${time(found.timestamp_ms)} · ${TYPES[found.timestamp_type] ?? ""}`), el("button", { type: "button", class: "round", "aria-label": "Close the record", "data-key": "Escape", onclick: close }, "×")),
        field("Key", found.key), field("Value", found.value), headersOf(found), batch && batchOf(batch),
      );
    } catch (error) {
      if (!isAborted(error)) put(room, shownProblem(error, load));
    }
  };
  load();
  return { node, stop: ask.stop };
}
