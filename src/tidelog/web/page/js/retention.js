// When retention deletes each segment, and which record keeps it until then.

import { el } from "./dom.js";
import { bytes, count, counted, span, time } from "./format.js";
import { askedPart } from "./part.js";
import { linkWith } from "./state.js";
import { pagedTable } from "./table.js";

const recordLink = (row) => linkWith({ part: undefined, record: `${row.partition}:${row.pin.offset}`, start: undefined, end: undefined, sort: undefined, desc: undefined, page: undefined });

function pin(row) {
  if (!row.pin) return "–";
  const stamp = time(row.pin.timestamp_ms, "second");
  if (row.pin.offset === null || row.pin.offset === undefined) return `the file's time, ${stamp}`;
  return [el("a", { href: recordLink(row) }, `offset ${count(row.pin.offset)}`), ` of ${stamp}`, row.pinned_ms > 0 && el("span", { class: "mark" }, `${span(row.pinned_ms)} longer than its own records`)];
}

const COLUMNS = [
  { name: "Segment", sort: "base_offset", class: "name", cell: (row) => `${row.partition} · ${count(row.base_offset)}` },
  { name: "Size", sort: "bytes", downFirst: true, class: "number", cell: (row) => bytes(row.bytes) },
  { name: "Deleted", sort: "deleted_ms", class: "time", cell: (row) => (row.deleted_ms === null || row.deleted_ms === undefined ? "not by retention" : time(row.deleted_ms, "minute")) },
  { name: "Why", cell: (row) => row.why ?? "" },
  { name: "Kept by", sort: "pinned_ms", downFirst: true, class: "wide", cell: pin },
];

export function retentionPart(root, topic) {
  return askedPart(root, {
    endpoint: "retention",
    wantedOf: ({ partitions }) => ({ ...topic.wanted, partitions }),
    draw: ({ segments, retention_ms: keep }, params) => {
      if (!segments.length) return el("p", { class: "empty" }, "There are no segments.");
      const pinned = segments.filter((row) => row.pinned_ms > 0);
      const held = pinned.reduce((total, row) => total + row.bytes, 0);
      return [
        el("p", { class: "statement" }, keep === undefined || keep === null || keep < 0 ? "No segment is deleted by time here. " : ["Segments are kept for ", el("strong", {}, span(keep)), " after their newest record. "], pinned.length ? [el("strong", {}, counted(pinned.length, "segment")), ` (${bytes(held)}) ${pinned.length === 1 ? "stays" : "stay"} longer, for a record of a later time in an earlier segment.`] : "No segment is kept by another one's record."),
        pagedTable("When segments are deleted", COLUMNS, segments, params),
      ];
    },
  });
}
