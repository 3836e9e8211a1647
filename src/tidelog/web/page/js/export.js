// Downloads of the selected records, and shell, Python, SQL and Spark lines that return the same records.

import { address } from "./api.js";
import { announce, el } from "./dom.js";
import { Filters, filtersOf } from "./filters.js";
import { askedPart } from "./part.js";

const LANGUAGES = [
  ["cli", "Command line"],
  ["python", "Python"],
  ["sql", "SQL"],
  ["spark", "Spark"],
];

async function copy(text, button) {
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  announce("Copied");
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

export function exportPart(root, topic) {
  const filters = new Filters();
  const links = el("p", { class: "bar downloads" });
  root.append(filters.root, links);
  const wantedOf = (params) => ({ ...topic.wanted, ...filtersOf(params), start: params.start, end: params.end });
  return askedPart(root, {
    endpoint: "lines",
    head: (params) => {
      filters.update(params);
      const formats = [
        ["jsonl", "JSON Lines"],
        ["parquet", "Parquet"],
      ];
      links.replaceChildren(...formats.map(([format, name]) => el("a", { class: "button", download: true, href: address("export", { ...wantedOf(params), format }) }, `Download as ${name}`)));
    },
    wantedOf,
    draw: (lines) =>
      [...(lines.notes ?? []).map((note) => el("p", { class: "note" }, `Note: ${note}.`)), ...LANGUAGES.filter(([key]) => lines[key]).map(([key, name]) =>
        el("section", { class: "lines" }, el("h2", {}, name, " ", el("button", { type: "button", "aria-label": `Copy the ${name} lines`, onclick: (event) => copy(lines[key], event.currentTarget) }, "Copy")), el("pre", { tabindex: 0, role: "group", "aria-label": name }, lines[key])),
      )],
  });
}
