// The form with search conditions, order and decoding, for records, live tail and export.

import { choice, el, field } from "./dom.js";
import { change } from "./state.js";

const SEARCHES = [
  ["grep", "Search", "regular expression in key or value"],
  ["key", "Key", "equals"],
  ["header", "Header", "name=value"],
  ["where", "Where", "value->>'$.city' = 'Kyiv'"],
];

const DECODINGS = [
  ["", "default"],
  ["auto", "automatic"],
  ["raw", "raw"],
  ["utf8", "text"],
  ["json", "JSON"],
  ["avro", "Avro"],
  ["protobuf", "Protobuf"],
  ["msgpack", "MessagePack"],
  ["hex", "hex"],
];

const CHOICES = [
  ["order", "Order", [["time", "by time"], ["offset", "by offset"]]],
  ["decode", "Values as", DECODINGS],
  ["key_decode", "Keys as", DECODINGS],
];

const NAMES = [...SEARCHES, ...CHOICES].map(([name]) => name);

/** Return the order: by default time for a range, and offset for a whole topic, whose earliest records may be anywhere in it. */
const orderOf = (params) => params.order ?? (params.start === undefined && params.end === undefined ? "offset" : "time");

export function filtersOf(params) {
  const of = Object.fromEntries(["partitions", ...NAMES].map((name) => [name, params[name]]));
  return { ...of, order: orderOf(params) };
}

/** The form. `without` names the controls that are left out. */
export class Filters {
  constructor(without = []) {
    this.inputs = {};
    const searches = SEARCHES.filter(([name]) => !without.includes(name)).map(([name, label, hint]) => {
      this.inputs[name] = el("input", { type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false", "data-search": name === "grep" });
      return field(label, this.inputs[name]);
    });
    const choices = CHOICES.filter(([name]) => !without.includes(name)).map(([name, label, options]) => {
      this.inputs[name] = choice(options, "", { onchange: (event) => change({ [name]: event.target.value || undefined, after: undefined, record: undefined }) });
      return field(label, this.inputs[name]);
    });
    this.summary = el("summary", {}, "Search and view");
    const form = el("form", { class: "filters", onsubmit: (event) => (event.preventDefault(), this.submit()) }, searches, choices, el("button", {}, "Search"));
    this.root = el("details", { class: "filters-box", open: innerWidth > 700 }, this.summary, form);
  }

  submit() {
    const typed = Object.entries(this.inputs).filter(([, input]) => input.tagName === "INPUT");
    change({ ...Object.fromEntries(typed.map(([name, input]) => [name, input.value.trim() || undefined])), after: undefined, record: undefined });
  }

  update(params) {
    for (const [name, input] of Object.entries(this.inputs)) if (document.activeElement !== input || input.tagName === "SELECT") input.value = (name === "order" ? orderOf(params) : params[name]) ?? "";
    const set = NAMES.filter((name) => params[name] && name in this.inputs);
    this.summary.textContent = set.length ? `Search and view: ${set.map((name) => `${name.replace("_", " ")} ${params[name]}`).join(", ")}` : "Search and view";
    if (set.some((name) => SEARCHES.some(([one]) => one === name))) this.root.open = true;
  }
}
