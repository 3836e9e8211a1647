// Compares the records of a range with those that a consumer reads between the offsets of its start and of its end.

import { el } from "./dom.js";
import { count, counted, time } from "./format.js";
import { askedPart } from "./part.js";
import { linkWith } from "./state.js";
import { pagedTable } from "./table.js";

const share = (row) => (row.exact ? Math.max(0, Math.min(1, 1 - row.lost / row.exact)) : 1);

const COLUMNS = [
  { name: "Partition", sort: "partition", cell: (row) => String(row.partition) },
  { name: "In the range", sort: "exact", downFirst: true, class: "number", cell: (row) => count(row.exact) },
  { name: "By offsets", sort: "cut", downFirst: true, class: "number wide-only", cell: (row) => count(row.cut) },
  { name: "Lost", sort: "lost", downFirst: true, class: "number", cell: (row) => el("span", { class: row.lost ? "bad" : undefined }, count(row.lost)) },
  { name: "From outside", sort: "superfluous", downFirst: true, class: "number", cell: (row) => count(row.superfluous) },
  { name: "Found", class: "meter-cell wide-only", cell: (row) => el("meter", { min: 0, max: 1, value: share(row), "aria-label": `Partition ${row.partition}: ${Math.round(share(row) * 100)} % found` }) },
];

const sum = (rows, name) => rows.reduce((total, row) => total + Number(row[name] ?? 0), 0);

export function cutPart(root, topic) {
  return askedPart(root, {
    endpoint: "cut",
    wantedOf: ({ start, end, partitions, exact }) => (start === undefined && end === undefined ? null : { ...topic.wanted, partitions, exact, start, end }),
    none: el("p", { class: "empty" }, "Choose a range above to see how many of its records are missed by a consumer that reads from the offset of its start to the offset of its end."),
    draw: ({ partitions, done, exact_counts: isExact }, params) => {
      const [exact, got, lost, more] = ["exact", "cut", "lost", "superfluous"].map((name) => sum(partitions, name));
      return [
        el("p", { class: "statement" }, "The range has ", el("strong", {}, counted(exact, "record")), ". Reading from the offset of its start to the offset of its end finds ", el("strong", {}, count(exact - lost)), " of them, loses ", el("strong", { class: lost ? "bad" : undefined }, count(lost)), `, and reads ${count(more)} from outside the range.`),
        el("p", { class: "quiet small" }, `${params.start === undefined ? "The first record" : time(params.start)} to ${params.end === undefined ? "the last record" : time(params.end)}. Kafka returns the offset of the first record at or after a time; late records come after that offset. ${counted(got, "record")} read in all.`),
        !isExact && el("p", { class: "note" }, "Estimated, because exact counts would take long to read. ", el("a", { href: linkWith({ exact: 1 }) }, "Count exactly")),
        !done && el("p", { class: "problem" }, "The time limit was reached before all partitions were counted: the sums cover only those below."),
        pagedTable("The cut by offsets, by partition", COLUMNS, partitions, params),
      ];
    },
  });
}
