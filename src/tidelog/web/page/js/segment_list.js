// The segments of one partition as a table, which keyboards and screen readers can use instead of the bars above.

import { choice, el, field } from "./dom.js";
import { bytes, count, counted, time } from "./format.js";
import { askedPart } from "./part.js";
import { change, linkWith } from "./state.js";
import { pagedTable } from "./table.js";

const MOST = 1000;

const COLUMNS = [
  { name: "Base offset", sort: "base_offset", class: "name underlined", cell: (row) => [row.min_ms == null ? count(row.base_offset) : el("a", { href: linkWith({ start: row.min_ms, end: row.max_ms + 1, part: undefined, sort: undefined, desc: undefined, page: undefined }), title: "Records in its time range" }, count(row.base_offset)), row.count > 1 && el("span", { class: "mark" }, `${count(row.count)} segments`), row.active && el("span", { class: "mark" }, "active"), row.late && el("span", { class: "mark late" }, "late records")] },
  { name: "Size", sort: "bytes", downFirst: true, class: "number", cell: (row) => bytes(row.bytes) },
  { name: "Earliest", sort: "min_ms", class: "time", cell: (row) => time(row.min_ms, "second") },
  { name: "Latest", sort: "max_ms", class: "time", cell: (row) => time(row.max_ms, "second") },
  { name: "Time map", cell: (row) => (row.has_map === true ? "yes" : row.has_map === false ? "no" : "–") },
];

/** Return a select of partitions, or a number field if there are many. */
export function partitionChoice(topic, value, chosen) {
  const all = topic.partitions.map((one) => String(one.partition));
  const props = { onchange: (event) => chosen(event.target.value) };
  if (all.length <= 200) return choice(all.map((one) => [one, one]), value, props);
  return el("input", { type: "number", min: all[0], max: all.at(-1), value, ...props });
}

export function segmentsPart(root, topic) {
  const head = el("div", { class: "bar" });
  root.append(head);
  const partitionOf = (params) => (params.partitions ?? String(topic.partitions[0]?.partition ?? 0)).split(",")[0];
  return askedPart(root, {
    endpoint: "segments",
    head: (params) => {
      if (head.contains(document.activeElement)) return;
      head.replaceChildren(field("Partition", partitionChoice(topic, partitionOf(params), (partitions) => change({ partitions, page: undefined }))));
    },
    wantedOf: (params) => ({ ...topic.wanted, partition: partitionOf(params), width: MOST }),
    draw: ({ segments, of }, params) => [
      el("p", { class: "quiet" }, counted(of ?? segments.length, "segment"), segments.length < (of ?? 0) && ", some neighbours are combined"),
      pagedTable("Segments", COLUMNS, segments, params),
    ],
  });
}
