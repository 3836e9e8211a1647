// Counts and segments on one time axis, and the range, which is selected with the pointer or the keyboard.

import { el, onWidth, put } from "./dom.js";
import { Axis, bounded, bucketsOf, moved, zoomed } from "./axis.js";
import { Counts } from "./counts.js";
import { time } from "./format.js";
import { described, Segments } from "./segments.js";
import { change, current } from "./state.js";

const DRAG_PX = 4;
const narrow = () => innerWidth < 560;

export class Timeline {
  /** `all` is the time range of all records, {from, to}; `wanted` has the source and the topic. */
  constructor(all, partitions, wanted) {
    this.all = this.main = all;
    this.wanted = wanted;
    this.params = {};
    this.width = 0;
    this.drawn = "";
    this.counts = new Counts();
    this.segments = new Segments(partitions, wanted);
    this.band = el("div", { class: "band", hidden: true, "aria-hidden": "true" });
    this.line = el("div", { class: "hover-line", hidden: true, "aria-hidden": "true" });
    this.words = el("p", { class: "quiet small hover-words" });
    this.strays = el("p", { class: "quiet small", hidden: true });
    this.plots = el("div", { class: "plots", tabindex: 0, role: "group", "aria-label": "Time axis. Arrow keys move the range, Shift and arrow keys change its length, plus and minus zoom, Escape removes it.", onkeydown: (event) => this.key(event) }, this.counts.root, partitions.length > 0 && this.segments.root, this.band, this.line);
    this.root = el("section", { class: "timeline", "aria-label": "Time" }, this.plots, this.words, this.strays);
    this.plots.addEventListener("pointerdown", (event) => this.down(event));
    this.plots.addEventListener("pointermove", (event) => this.hover(event));
    this.plots.addEventListener("pointerleave", () => this.rest());
    this.stopWidth = onWidth(this.root, (width) => {
      this.width = width;
      this.update(this.params);
    });
    this.rest();
  }

  grow(partitions, all) {
    if (this.segments.partitions.length) this.segments.grow(partitions);
    this.extend(all);
  }

  /** Set the time range of all records, and the part that the axis shows. */
  extend(all, main = all) {
    Object.assign(this, { all, main });
    this.update(this.params);
  }

  close() {
    this.stopWidth();
    this.counts.close();
    this.segments.close();
  }

  /** The selected range, from the address, because a key may be pressed before the view shows the last change. */
  get range() {
    const { start, end } = current().params;
    return start === undefined && end === undefined ? null : { start: Number(start ?? this.axis.from), end: Number(end ?? this.axis.to) };
  }

  update(params) {
    this.params = params;
    if (!this.width) return;
    const left = narrow() ? 40 : 56;
    const right = 24;
    const asked = new Axis(bounded(params.from ?? this.main.from), bounded(params.to ?? this.main.to), left, this.width - left - right, right);
    // The axis begins and ends at the border of a bar.
    const { start: from, end: to } = bucketsOf(asked);
    this.axis = new Axis(from, to, left, asked.width, right);
    const drawn = JSON.stringify([from, to, this.width, params.partitions, params.tz]);
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      this.counts.show(this.axis, { ...this.wanted, partitions: params.partitions });
      this.segments.show(this.axis);
    }
    this.mark(this.range);
    this.strays.hidden = this.all === this.main || params.from !== undefined || params.to !== undefined;
    put(this.strays, `A few records are outside this time range. All are from ${time(this.all.from, "minute")} to ${time(this.all.to - 1, "minute")}. `, el("button", { type: "button", onclick: () => change(this.all) }, "Show all times"));
  }

  mark(range) {
    this.band.hidden = !range || range.end < this.axis.from || range.start > this.axis.to;
    if (this.band.hidden) return;
    this.band.style.left = `${this.axis.x(range.start)}px`;
    this.band.style.width = `${Math.max(2, this.axis.x(range.end) - this.axis.x(range.start))}px`;
  }

  choose(range, replace = false) {
    change({ start: range?.start, end: range?.end, after: undefined, record: undefined }, { replace });
  }

  x(event) {
    return event.clientX - this.plots.getBoundingClientRect().left;
  }

  down(event) {
    if (event.button !== 0 || !this.axis || event.target.closest("a") || this.x(event) < this.axis.left) return;
    const began = this.x(event);
    const pointer = event.pointerId;
    let range = null;
    const move = (one) => {
      if (one.pointerId !== pointer) return;
      const now = this.x(one);
      if (!range && Math.abs(now - began) < DRAG_PX) return;
      range = { start: this.axis.ms(Math.min(began, now)), end: Math.max(this.axis.ms(Math.max(began, now)), this.axis.ms(Math.min(began, now)) + 1) };
      this.plots.classList.add("dragged");
      this.mark(range);
      this.words.textContent = `${time(range.start)} to ${time(range.end)}`;
    };
    const end = (one) => {
      if (one.pointerId !== pointer) return;
      for (const name of ["pointermove", "pointerup", "pointercancel"]) removeEventListener(name, listeners[name]);
      this.plots.classList.remove("dragged");
      if (one.type === "pointercancel") this.mark(this.range);
      else if (range) this.choose(range);
      else this.click(one);
    };
    const listeners = { pointermove: move, pointerup: end, pointercancel: end };
    for (const [name, listener] of Object.entries(listeners)) addEventListener(name, listener);
  }

  /** Select the times of the segment that was clicked. */
  click(event) {
    const found = this.under(event);
    if (found) change({ start: found.segment.min_ms, end: found.segment.max_ms + 1, partitions: found.partition, after: undefined });
  }

  under(event) {
    const box = this.segments.root.getBoundingClientRect();
    return event.clientY >= box.top && event.clientY < box.bottom ? this.segments.at(this.x(event), event.clientY - box.top) : null;
  }

  hover(event) {
    if (!this.axis || this.plots.classList.contains("dragged")) return;
    const x = this.x(event);
    if (x < this.axis.left || x > this.axis.left + this.axis.width) return this.rest();
    this.line.hidden = event.pointerType === "touch";
    this.line.style.left = `${x}px`;
    const found = this.under(event);
    const words = found ? `Partition ${found.partition} · ${described(found.segment)}` : (this.counts.at(x) ?? time(this.axis.ms(x)));
    this.words.textContent = words;
  }

  rest() {
    this.line.hidden = true;
    const legend = [
      ["segment", "segment"],
      ["late", narrow() ? "late records" : "late records: from an earlier segment's time"],
      ["active", "active"],
    ];
    const hasFiles = this.segments.partitions.length > 0;
    put(
      this.words,
      hasFiles && legend.map(([name, text]) => el("span", { class: `key-${name}` }, text)),
      el("span", {}, hasFiles && !narrow() ? "Drag to select a range, or click a segment." : "Drag to select a range."),
    );
  }

  key(event) {
    if (event.target !== this.plots || !this.axis) return;
    const range = this.range ?? { start: bounded(this.axis.from + this.axis.span * 0.4), end: bounded(this.axis.from + this.axis.span * 0.6) };
    const steps = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (steps) this.choose(this.range ? moved(range, this.axis, event.shiftKey ? 0 : steps, event.shiftKey ? steps : 0) : range, this.range !== null);
    else if (factor) change(zoomed(this.axis, this.range, factor), { replace: true });
    else if (event.key === "Escape" && this.range) this.choose(null);
    else return;
    event.preventDefault();
  }
}
