// The time axis of a topic: the part of time that is drawn, the range that is chosen in it, and their pixels.

const LEAST_MS = 1;

/** What `time ↔ pixel` needs: the drawn times [from, to) on `width` pixels that begin at `left` and leave `right`. */
export class Axis {
  constructor(from, to, left, width, right = 0) {
    this.from = from;
    this.to = Math.max(to, from + LEAST_MS);
    this.left = left;
    this.width = Math.max(1, width);
    this.right = right;
  }

  get span() {
    return this.to - this.from;
  }

  /** The pixel of a time, within what is drawn. */
  x(ms) {
    return this.left + ((Math.min(this.to, Math.max(this.from, ms)) - this.from) / this.span) * this.width;
  }

  /** The time at a pixel, within what is drawn, in whole ms. */
  ms(x) {
    const share = Math.min(1, Math.max(0, (x - this.left) / this.width));
    return Math.round(this.from + share * this.span);
  }
}

const FARTHEST = 8.64e15;

/** Numbers that a Date can hold. */
export const bounded = (ms) => Math.min(FARTHEST, Math.max(-FARTHEST, Math.round(Number(ms))));

/** A range moved by `steps` tenths of what is drawn, made longer by `grown` tenths of it. */
export function moved(range, axis, steps, grown) {
  const step = axis.span / 20;
  const start = bounded(range.start + steps * step);
  const end = bounded(range.end + (steps + grown) * step);
  return { start, end: Math.max(end, start + LEAST_MS) };
}

/** The drawn part `factor` times as long, about its middle or that of the range. */
export function zoomed(axis, range, factor) {
  const middle = range ? (range.start + range.end) / 2 : (axis.from + axis.to) / 2;
  const half = Math.max(LEAST_MS * 5, (axis.span * factor) / 2);
  return { from: bounded(middle - half), to: bounded(middle + half) };
}

const SECOND = 1000;
const DAY = 86_400_000;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200].map((one) => one * SECOND), ...[1, 2, 7, 14, 28].map((one) => one * DAY)];

const BAR_PX = 6;

/** Whole stretches of time that cover what is drawn, of a length that people use, each at least a bar wide. */
export function bucketsOf(axis) {
  const least = axis.span / Math.max(10, Math.min(1900, Math.floor(axis.width / BAR_PX)));
  const step = STEPS.find((one) => one >= least) ?? Math.ceil(least / (28 * DAY)) * 28 * DAY;
  const start = bounded(Math.floor(axis.from / step) * step);
  const number = Math.max(1, Math.ceil((axis.to - start) / step));
  return { start, end: bounded(start + number * step), buckets: number };
}

/** How many of `total` records may be beyond the axis at either end: those of clocks that are wrong. */
const strays = (total) => (total < 20 ? 0 : Math.max(1, Math.floor(total / 1000)));

/** The time of an answer's counts without the strays at both ends; `spare` is how many are left of an earlier call. */
export function bulk({ start_ms: start, step_ms: step, counts }, spare) {
  const total = counts.reduce((one, other) => one + other, 0);
  let { before, after } = spare ?? { before: strays(total), after: strays(total) };
  let [first, last] = [0, total ? counts.length - 1 : 0];
  for (; first < last && counts[first] <= before; first++) before -= counts[first];
  for (; last > first && counts[last] <= after; last--) after -= counts[last];
  return { from: bounded(start + first * step), to: bounded(start + (total ? last + 1 : counts.length) * step), spare: { before, after } };
}
