// When retention deletes each segment, and which record keeps it until then.

import { el } from "./dom.js";
import { bytes, count, counted, span, time } from "./format.js";
import { askedPart } from "./part.js";
import { linkWith } from "./state.js";
import { pagedTable } from "./table.js";

const recordLink = (row) => linkWith({ part: undefined, record: `${row.partition}:${row.kept_by.offset}`, start: undefined, end: undefined, sort: undefined, desc: undefined, page: undefined });

/** Return how much longer (ms) a record of another segment keeps a segment than its own records do. */
const pinned = (row) => (row.kept_by && row.max_ms !== null && row.kept_by.segment !== row.base_offset ? Math.max(0, row.kept_by.timestamp_ms - row.max_ms) : 0);

function pin(row) {
  const keeper = row.kept_by;
  if (!keeper) return "–";
  const stamp = time(keeper.timestamp_ms, "second");
  if (keeper.offset == null) return `the file's time, ${stamp}`;
  return [el("a", { href: recordLink(row) }, `offset ${count(keeper.offset)}`), ` of ${stamp}`, keeper.future && el("span", { class: "mark bad" }, "in the future"), row.pinned_ms > 0 && el("span", { class: "mark" }, `${span(row.pinned_ms)} longer than its own records`)];
}

const COLUMNS = [
  { name: "Segment", sort: "base_offset", class: "name", cell: (row) => `${row.partition} · ${count(row.base_offset)}` },
  { name: "Size", sort: "bytes", downFirst: true, class: "number", cell: (row) => bytes(row.bytes) },
  { name: "Deleted", sort: "goes_ms", class: "time", cell: (row) => (row.goes_ms === null ? "not by retention" : row.goes_now ? "at the next check" : time(row.goes_ms, "minute")) },
  { name: "Why", cell: (row) => row.reason },
  { name: "Kept by", sort: "pinned_ms", downFirst: true, class: "wide", cell: pin },
];

export function retentionPart(root, topic) {
  return askedPart(root, {
    endpoint: "retention",
    wantedOf: ({ partitions }) => ({ ...topic.wanted, partitions }),
    draw: ({ partitions, settings, notes, done }, params) => {
      const segments = partitions.flatMap((one) => one.segments.map((row) => ({ ...row, partition: one.partition, pinned_ms: pinned(row) })));
      const keep = Number(settings["retention.ms"].value ?? -1);
      if (!segments.length) return el("p", { class: "empty" }, "There are no segments.");
      const longer = segments.filter((row) => row.pinned_ms > 0);
      const held = longer.reduce((total, row) => total + row.bytes, 0);
      return [
        el("p", { class: "statement" }, keep < 0 ? "No segment is deleted by time here. " : ["Segments are kept for ", el("strong", {}, span(keep)), " after their newest record. "], longer.length ? [el("strong", {}, counted(longer.length, "segment")), ` (${bytes(held)}) ${longer.length === 1 ? "stays" : "stay"} longer, for a record of a later time in an earlier segment.`] : "No segment is kept longer because of a record in another segment."),
        !done && el("p", { class: "quiet" }, "Only the first segments are shown; choose a partition above to see all of its segments."),
        notes.map((note) => el("p", { class: "note" }, note)),
        pagedTable("When segments are deleted", COLUMNS, segments, params),
      ];
    },
  });
}
