// The segments on the time axis, one row for each partition. A row is requested and drawn when it scrolls into view.

import { ask, isAborted } from "./api.js";
import { el, put, svg } from "./dom.js";
import { bytes, count, counted, time } from "./format.js";
import { linkWith } from "./state.js";

const ROW = 26;
const BEYOND = 4;
const AT_ONCE = 4;
const AGAIN_MS = 300; // If the server did not find all times within its time limit, the segments are requested again.

const timeless = (segments) => (segments.every((one) => one.base_offset === one.end_offset) ? "no records" : "no timestamps");

export function described(segment) {
  const joined = segment.count > 1 ? `${count(segment.count)} segments from ${count(segment.base_offset)}` : `Segment ${count(segment.base_offset)}`;
  const records = `offsets to ${count(segment.end_offset)}, ${bytes(segment.bytes)}`;
  const times = segment.min_ms == null ? timeless([segment]) : `${time(segment.min_ms, "second")} to ${time(segment.max_ms, "second")}`;
  const late = segment.late ? ", has records from an earlier segment's time" : "";
  return `${joined}: ${records}, ${times}${late}${segment.active ? ", active" : ""}`;
}

export class Segments {
  constructor(partitions, wanted) {
    this.wanted = wanted;
    this.axis = null;
    this.rows = new Map();
    this.waiting = [];
    this.under = 0;
    this.given = new AbortController();
    this.room = el("div", { class: "rows-room" });
    this.root = el("div", { class: "rows", role: "group", onscroll: () => this.draw() }, this.room);
    this.grow(partitions);
  }

  /** Set the list of partitions, which only grows. */
  grow(partitions) {
    this.partitions = partitions;
    this.room.style.height = `${partitions.length * ROW}px`;
    this.root.setAttribute("aria-label", `Segments of ${counted(partitions.length, "partition")} over time`);
    if (partitions.length * ROW > 340) this.root.tabIndex = 0;
    this.draw();
  }

  close() {
    this.given.abort();
  }

  /** Draw on a different axis; all rows are requested again. */
  show(axis) {
    this.given.abort();
    this.given = new AbortController();
    this.axis = axis;
    this.rows.clear();
    this.waiting = [];
    this.under = 0;
    put(this.room);
    this.draw();
  }

  draw() {
    if (!this.axis) return;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - BEYOND);
    const last = Math.min(this.partitions.length, Math.ceil((this.root.scrollTop + (this.root.clientHeight || 340)) / ROW) + BEYOND);
    for (const [at, row] of this.rows) {
      if (at < first || at >= last) {
        row.node.remove();
        this.rows.delete(at);
      }
    }
    for (let at = first; at < last; at++) if (!this.rows.has(at)) this.add(at);
  }

  add(at) {
    const partition = this.partitions[at];
    const picture = el("div", { class: "row-picture" });
    const name = el("a", { class: "row-name", href: linkWith({ partitions: partition, after: undefined }), title: `Partition ${partition} only`, "aria-label": `Partition ${partition}` }, String(partition));
    const node = el("div", { class: "row" }, name, picture);
    node.style.top = `${at * ROW}px`;
    name.style.width = `${this.axis.left - 8}px`;
    picture.style.left = `${this.axis.left}px`;
    picture.style.width = `${this.axis.width}px`;
    // Rows are kept in order, so that the Tab key moves down.
    const next = [...this.rows.entries()].filter(([other]) => other > at).sort(([one], [other]) => one - other)[0];
    this.room.insertBefore(node, next ? next[1].node : null);
    this.rows.set(at, { node, picture, partition, segments: null });
    this.waiting.push(at);
    this.work();
  }

  /** Request the waiting rows, a few at a time, except rows that have scrolled out of view. */
  async work() {
    if (this.under >= AT_ONCE) return;
    const at = this.waiting.shift();
    if (at === undefined) return;
    const row = this.rows.get(at);
    if (!row || row.segments) return this.work();
    this.under += 1;
    const { signal } = this.given;
    try {
      const answer = await ask("segments", { ...this.wanted, partition: row.partition, start: this.axis.from, end: this.axis.to, width: Math.min(1000, this.axis.width) }, signal);
      row.segments = answer.segments;
      this.paint(row, answer.of);
      if (answer.pending) setTimeout(() => signal.aborted || (row.segments = null, this.waiting.push(at), this.work()), AGAIN_MS);
    } catch (error) {
      if (isAborted(error)) return;
      put(row.picture, el("span", { class: "row-note" }, error.message));
    }
    this.under -= 1;
    this.work();
  }

  paint(row, total) {
    const { axis } = this;
    const paths = { plain: "", late: "", active: "" };
    const placed = row.segments.filter((one) => one.min_ms != null);
    const bar = (from, to, top, height) => {
      const left = axis.x(from) - axis.left;
      const width = Math.max(1.5, axis.x(to) - axis.left - left - 1);
      return `M${left.toFixed(1)} ${top}h${width.toFixed(1)}v${height}h${(-width).toFixed(1)}z`;
    };
    let latest = null;
    for (const one of placed) {
      paths[one.active ? "active" : "plain"] += bar(one.min_ms, one.max_ms, 5, 8);
      // Below the bar: the times that an earlier segment had already reached.
      if (one.late) paths.late += bar(one.min_ms, latest === null || latest < one.min_ms ? one.max_ms : Math.min(latest, one.max_ms), 15, 5);
      latest = Math.max(latest ?? one.max_ms, one.max_ms);
    }
    const late = placed.filter((one) => one.late).length;
    const label = `Partition ${row.partition}: ${counted(total ?? row.segments.length, "segment")}${late ? `, ${count(late)} late` : ""}`;
    const drawn = Object.entries(paths).filter(([, path]) => path);
    put(
      row.picture,
      drawn.length
        ? svg("svg", { role: "img", "aria-label": label, width: axis.width, height: ROW }, drawn.map(([name, path]) => svg("path", { class: `segment-${name}`, d: path })))
        : el("span", { class: "row-note" }, row.segments.length ? timeless(row.segments) : "no segment in this time"),
    );
  }

  /** Return the partition and segment at a point; `y` is measured from the top of the rows' box. */
  at(x, y) {
    const row = this.rows.get(Math.floor((y + this.root.scrollTop) / ROW));
    const low = ((y + this.root.scrollTop) % ROW) >= 14;
    const under = (row?.segments ?? []).filter((one) => one.min_ms !== null && this.axis.x(one.min_ms) - 2 <= x && x <= this.axis.x(one.max_ms) + 2);
    const segment = under.filter((one) => one.late === low).at(-1) ?? under.at(-1);
    return segment ? { partition: row.partition, segment } : null;
  }
}
