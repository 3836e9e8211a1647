// Consumer groups: how far behind each is, in records and in time; and one group by partition.

import { el, put } from "./dom.js";
import { count, counted, span, time } from "./format.js";
import { askedPart } from "./part.js";
import { linkTo } from "./state.js";
import { pagedTable } from "./table.js";

const LAG = [
  { name: "Lag", sort: "lag", downFirst: true, class: "number", cell: (row) => count(row.lag) },
  { name: "Behind", sort: "lag_ms", downFirst: true, class: "number", cell: (row) => span(row.lag_ms) },
];

const GROUPS = [
  { name: "Group", sort: "group", class: "name", cell: (row) => el("a", { href: linkTo("group", { group: row.group }) }, row.group) },
  { name: "State", sort: "state", cell: (row) => [row.state, row.type && row.type !== "classic" && el("span", { class: "mark" }, row.type), row.keeps_positions && el("span", { class: "mark" }, "positions of a writer")] },
  { name: "Members", sort: "members", downFirst: true, class: "number wide-only", cell: (row) => count(row.members) },
  { name: "Partitions", sort: "partitions", downFirst: true, class: "number wide-only", cell: (row) => count(row.partitions) },
  ...LAG,
];

const PARTITIONS = [
  { name: "Partition", sort: "topic", class: "name", cell: (row) => el("a", { href: linkTo("topic", { topic: row.topic, partitions: row.partition }) }, `${row.topic} ${row.partition}`) },
  { name: "Committed", class: "number wide-only", cell: (row) => count(row.committed) },
  { name: "End", class: "number wide-only", cell: (row) => count(row.end) },
  ...LAG,
  { name: "Lost", sort: "lost", downFirst: true, class: "number", cell: (row) => el("span", { class: row.lost ? "bad" : undefined }, count(row.lost)) },
  { name: "Next record of", class: "time wide-only", cell: (row) => time(row.next_ms, "second") },
];

const noted = (notes) => (notes ?? []).map((note) => el("p", { class: "note" }, note));

/** Return a view that shows the answer to one request. */
function answered(root, title, head, endpoint, wanted, draw) {
  put(root, head);
  return { title: `${title} – Tidelog`, ...askedPart(root, { endpoint, wantedOf: () => wanted, draw }) };
}

export const groupsView = {
  key: () => "",
  open: (root, params) =>
    answered(root, "Groups", el("h1", {}, "Groups"), "groups", { source: params.source }, ({ groups, notes }, now) =>
      groups.length ? [pagedTable("Groups", GROUPS, groups, now), noted(notes)] : el("p", { class: "empty" }, "No consumer group has committed offsets here.")),
};

export const groupView = {
  key: (params) => params.group,
  open: (root, params) => {
    const crumbs = el("p", { class: "crumbs" }, el("a", { href: linkTo("groups") }, "Groups"));
    return answered(root, params.group ?? "Group", [crumbs, el("h1", {}, params.group)], "group", { source: params.source, group: params.group }, (found, now) => {
      const members = found.member_count;
      return [
        el("p", { class: "quiet" }, [found.state, found.type, members === undefined ? null : counted(members, "member")].filter(Boolean).join(" · ")),
        noted(found.notes),
        found.partitions.length ? pagedTable(`Partitions of ${params.group}`, PARTITIONS, found.partitions, now) : el("p", { class: "empty" }, "The group has no committed offsets."),
      ];
    });
  },
};
