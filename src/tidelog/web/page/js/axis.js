// The time axis of a topic: the visible times, the selected range, and their pixels.

const LEAST_MS = 1;

/** Converts times to pixels and back: the visible times [from, to) are `width` pixels wide, with margins `left` and `right`. */
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

  /** Return the pixel of a time, limited to the visible times. */
  x(ms) {
    return this.left + ((Math.min(this.to, Math.max(this.from, ms)) - this.from) / this.span) * this.width;
  }

  /** Return the time at a pixel in whole ms, limited to the visible times. */
  ms(x) {
    const share = Math.min(1, Math.max(0, (x - this.left) / this.width));
    return Math.round(this.from + share * this.span);
  }
}

const FARTHEST = 8.64e15;

/** Return a time, rounded to whole ms and limited to what a Date can hold. */
export const bounded = (ms) => Math.min(FARTHEST, Math.max(-FARTHEST, Math.round(Number(ms))));

/** Return a range, moved by `steps` twentieths of the visible time, and longer by `grown` twentieths. */
export function moved(range, axis, steps, grown) {
  const step = axis.span / 20;
  const start = bounded(range.start + steps * step);
  const end = bounded(range.end + (steps + grown) * step);
  return { start, end: Math.max(end, start + LEAST_MS) };
}

/** Return visible times that are `factor` times as long. The middle is that of the range, or else of the axis. */
export function zoomed(axis, range, factor) {
  const middle = range ? (range.start + range.end) / 2 : (axis.from + axis.to) / 2;
  const half = Math.max(LEAST_MS * 5, (axis.span * factor) / 2);
  return { from: bounded(middle - half), to: bounded(middle + half) };
}

const SECOND = 1000;
const DAY = 86_400_000;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200].map((one) => one * SECOND), ...[1, 2, 7, 14, 28].map((one) => one * DAY)];

const BAR_PX = 6;

/** Return intervals of a round length, such as 5 minutes, that cover the visible times; each is at least a bar wide. */
export function bucketsOf(axis) {
  const least = axis.span / Math.max(10, Math.min(1900, Math.floor(axis.width / BAR_PX)));
  const step = STEPS.find((one) => one >= least) ?? Math.ceil(least / (28 * DAY)) * 28 * DAY;
  const start = bounded(Math.floor(axis.from / step) * step);
  const number = Math.max(1, Math.ceil((axis.to - start) / step));
  return { start, end: bounded(start + number * step), buckets: number };
}
