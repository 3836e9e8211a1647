// The time range of a topic's records, and the part of it that the axis shows.

import { Axis, bounded, bucketsOf } from "./axis.js";

const WIDTH = 600;

/** Return how many of `total` records may be left out at each end: their timestamps are probably wrong. */
const strays = (total) => (total < 20 ? 0 : Math.max(1, Math.floor(total / 1000)));

/** Return the time range of the counts without strays. `spare` has those that an earlier call left over. */
function bulk({ start_ms: start, step_ms: step, counts }, spare) {
  const total = counts.reduce((one, other) => one + other, 0);
  let { before, after } = spare ?? { before: strays(total), after: strays(total) };
  let [first, last] = [0, total ? counts.length - 1 : 0];
  for (; first < last && counts[first] <= before; first++) before -= counts[first];
  for (; last > first && counts[last] <= after; last--) after -= counts[last];
  return { from: bounded(Number(start) + first * step), to: bounded(Number(start) + (total ? last + 1 : counts.length) * step), spare: { before, after } };
}

/**
 * Return two ranges {from, to}: `all` has every record and `known`; `main` leaves out a few far from all others, because a few
 * wrong clocks would shrink the rest to a line.
 */
export async function extentOf(ask, wanted, known) {
  let answer = await ask("counts", { ...wanted, buckets: 100 });
  if (!answer.counts.some(Boolean)) return { ...answer, all: known, main: known };
  const all = { from: Math.min(known.from, answer.start_ms), to: Math.max(known.to, answer.end_ms) };
  let main = all;
  for (let spare, share = 20; answer.in_time; share = 2) {
    const found = bulk(answer, spare);
    const isClose = (found.to - found.from) * share >= main.to - main.from;
    if (isClose && main === all) break;
    ({ spare, ...main } = found);
    if (isClose) break;
    answer = await ask("counts", { ...wanted, ...bucketsOf(new Axis(main.from, main.to, 0, WIDTH)) });
  }
  return { all, main, in_time: answer.in_time };
}
