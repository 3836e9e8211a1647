// The chart of the number of records in each interval, drawn by uPlot.

import { asker, isAborted } from "./api.js";
import { bucketsOf } from "./axis.js";
import { el, put } from "./dom.js";
import { chosenZone, count, counted, span, tick, time } from "./format.js";

const HEIGHT = 142;

let library = null;

/** Return uPlot; load it for the first chart. */
function uPlotLoaded() {
  library ??= new Promise((done, failed) => {
    document.head.append(
      el("link", { rel: "stylesheet", href: "vendor/uPlot/uPlot.min.css" }),
      el("script", { src: "vendor/uPlot/uPlot.iife.min.js", onload: () => done(window.uPlot), onerror: () => failed(new Error("uPlot could not be loaded")) }),
    );
  });
  return library;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = new Intl.NumberFormat("en", { notation: "compact" });

/** Return a tick's text, empty if the right border, `room` pixels from the tick's middle, would cut it off. */
const fitting = (text, room) => (Math.max(...text.split("\n").map((line) => line.length)) * 3.6 > room ? "" : text);

export class Counts {
  constructor() {
    this.ask = asker();
    this.chart = null;
    this.answer = null;
    this.axis = null;
    this.plot = el("div", { class: "chart", role: "img", "aria-label": "Records over time" });
    this.note = el("p", { class: "quiet small" });
    this.root = el("div", {}, this.plot, this.note);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.answer && this.draw();
    this.dark.addEventListener("change", this.redraw);
  }

  close() {
    this.ask.stop();
    this.dark.removeEventListener("change", this.redraw);
    this.chart?.destroy();
  }

  /** Request and draw the counts of the times on `axis`. */
  async show(axis, wanted) {
    this.axis = axis;
    this.note.textContent = this.answer ? this.note.textContent : "Counting …";
    try {
      if (this.answer) await this.draw(); // What is known, in the new width and time, until the answer comes.
      this.answer = await this.ask("counts", { ...wanted, ...bucketsOf(axis) });
      await this.draw();
    } catch (error) {
      if (isAborted(error)) return;
      this.answer = null;
      this.chart?.destroy();
      this.chart = null;
      put(this.plot);
      this.note.textContent = `No counts: ${error.message}`;
    }
  }

  /** Return the description of the bar at a pixel, null without a bar. */
  at(x) {
    if (!this.answer) return null;
    const { start_ms: start, step_ms: step, counts } = this.answer;
    const slot = Math.floor((this.axis.ms(x) - start) / step);
    return slot in counts ? `${counted(counts[slot], "record")} in ${span(step)} from ${time(start + slot * step)}` : null;
  }

  async draw() {
    const uPlot = await uPlotLoaded();
    const { start_ms: start, step_ms: step, counts, exact, why } = this.answer;
    const axis = this.axis;
    const text = colour("--chart-text");
    const grid = { stroke: colour("--chart-line"), width: 1 };
    const bar = colour("--chart-bar");
    const highest = counts.reduce((one, other) => Math.max(one, other), 0);
    const total = counts.reduce((one, other) => one + other, 0);
    const options = {
      width: axis.left + axis.width + axis.right,
      height: HEIGHT,
      ms: 1,
      padding: [10, axis.right, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: true, range: [axis.from, axis.to] }, y: { range: [0, Math.max(1, highest)] } },
      axes: [
        { stroke: text, grid, ticks: grid, font: "12px system-ui", size: 48, space: 90, values: (_, at) => at.map((ms, index) => fitting(tick(ms, at[1] - at[0] || step, at[index - 1]), axis.left + axis.width + axis.right - axis.x(ms))) },
        { stroke: text, grid, ticks: { show: false }, font: "12px system-ui", size: axis.left, space: 34, incrs: [1, 2, 5].flatMap((one) => Array.from({ length: 16 }, (_, power) => one * 10 ** power)).sort((one, other) => one - other), values: (_, at) => at.map((value) => short.format(value)) },
      ],
      tzDate: (ms) => uPlot.tzDate(new Date(ms), chosenZone()),
      series: [{}, { stroke: bar, fill: bar, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.86, Infinity], align: 1 }) }],
    };
    this.chart?.destroy();
    put(this.plot);
    this.chart = new uPlot(options, [counts.map((_, at) => start + at * step), counts], this.plot);
    this.plot.setAttribute("aria-label", `Records over time: ${counted(total, "record")} from ${time(axis.from, "second")} to ${time(axis.to, "second")}, at most ${count(highest)} in ${span(step)}${exact === false ? `, estimated: ${why.join(", ")}` : ""}`);
    put(this.note, `${span(step)} a bar`, exact === false && el("span", { title: why.join(", ") }, " · estimated"));
  }
}