// The form for the range: times as text, which the server parses, and buttons for frequent changes.

import { asker, isAborted, shownProblem } from "./api.js";
import { el, field, put } from "./dom.js";
import { chosenZone, time } from "./format.js";
import { change } from "./state.js";

const EXAMPLES = "yesterday 09:00, 09:15, -15m, +15m after the start, 2026-11-17T09, last monday";

export class RangeForm {
  constructor() {
    this.ask = asker();
    const input = (label, placeholder) => el("input", { type: "text", "aria-label": label, placeholder, autocomplete: "off", spellcheck: "false", size: 23, title: EXAMPLES });
    this.from = input("From", "the first record");
    this.to = input("To", "the last record");
    this.said = el("div", { class: "said" });
    const zoomIn = el("button", { type: "button", "data-key": "z", onclick: () => change({ from: this.params.start, to: this.params.end }) }, "Zoom to range");
    const all = el("button", { type: "button", "data-key": "a", onclick: () => change({ start: undefined, end: undefined, from: undefined, to: undefined, partitions: undefined, after: undefined }) }, "All");
    this.buttons = { zoomIn, all };
    this.total = el("output", { class: "total", "aria-live": "polite" });
    this.root = el(
      "form",
      { class: "range bar", onsubmit: (event) => this.submit(event) },
      field("From", this.from), field("To", this.to),
      el("button", { class: "primary" }, "Show"), zoomIn, all, this.total, this.said,
    );
    this.params = {};
  }

  update(params) {
    this.params = params;
    const shown = (ms) => (ms === undefined ? "" : time(ms, Number(ms) % 1000 ? "ms" : "second"));
    this.from.value = shown(params.start);
    this.to.value = shown(params.end);
    this.shown = [this.from.value, this.to.value];
    this.buttons.zoomIn.disabled = params.start === undefined && params.end === undefined;
    this.buttons.all.disabled = ["start", "end", "from", "to", "partitions"].every((name) => params[name] === undefined);
  }

  async submit(event) {
    event.preventDefault();
    const typed = (input, at, ms) => (input.value.trim() === this.shown[at] && ms !== undefined ? ms : input.value.trim());
    try {
      const understood = await this.ask("time", { start: typed(this.from, 0, this.params.start), end: typed(this.to, 1, this.params.end), tz: chosenZone() });
      const { start, end } = understood;
      put(this.said, el("p", { class: "quiet small" }, [start && `from ${start.text}`, end && `to ${end.text}`].filter(Boolean).join(" ")));
      change({ start: start?.ms, end: end?.ms, after: undefined, record: undefined });
    } catch (error) {
      if (!isAborted(error)) put(this.said, shownProblem(error));
    }
  }
}
