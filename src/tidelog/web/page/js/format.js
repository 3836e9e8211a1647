// Formats times, spans, sizes and counts for people.

const FARTHEST = 8.64e15; // What a Date can hold; a record's timestamp may be anything of 64 bits.
const formats = new Map();

let zone = "UTC";
export const chosenZone = () => zone;

/** Set the zone of all times. If the browser does not know the name, the zone stays unchanged. */
export function chooseZone(name) {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    zone = name;
  } catch {
    zone = zone || "UTC";
  }
}

function formatOf(precision) {
  const key = `${zone} ${precision}`;
  if (!formats.has(key)) {
    const two = "2-digit";
    const options = { timeZone: zone, hourCycle: "h23", year: "numeric", month: two, day: two };
    if (precision !== "day") Object.assign(options, { hour: two, minute: two });
    if (precision === "second" || precision === "ms") options.second = two;
    if (precision === "ms") options.fractionalSecondDigits = 3;
    formats.set(key, new Intl.DateTimeFormat("sv-SE", options));
  }
  return formats.get(key);
}

/** Format epoch ms in the chosen zone: `2026-11-17 09:00:00.123`. A time that a Date cannot hold stays a number. */
export function time(ms, precision = "ms") {
  if (ms == null) return "–";
  const number = Number(ms);
  if (number === -1) return "no timestamp";
  if (!(Math.abs(number) <= FARTHEST)) return `${ms} ms`;
  return formatOf(precision).format(number).replace(",", ".");
}

/** Format a tick of an axis, as short as ticks `step` ms apart allow. The day is shown only where it changes. */
export function tick(ms, step, before) {
  const day = time(ms, "day");
  if (step >= 86_400_000) return day;
  const clock = time(ms, step < 1000 ? "ms" : step < 60_000 ? "second" : "minute").slice(11);
  return before !== undefined && time(before, "day") === day ? clock : `${clock}\n${day}`;
}

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
  ["ms", 1],
];

/** Format a span in ms with at most two units: `2h 5m`. */
export function span(ms) {
  if (ms == null) return "–";
  let left = Math.abs(Math.round(Number(ms)));
  if (left === 0) return "0s";
  const parts = [];
  for (const [unit, size] of UNITS) {
    if (left >= size && parts.length < 2 && !(unit === "ms" && parts.length)) {
      parts.push(`${count(Math.floor(left / size))}${unit}`);
      left %= size;
    } else if (parts.length) break;
  }
  return (ms < 0 ? "−" : "") + parts.join(" ");
}

/** Format a whole number with separators. Beyond 2^53 the server sends a string. */
export function count(value) {
  if (value == null) return "–";
  return (typeof value === "string" ? BigInt(value) : value).toLocaleString("en");
}

export const counted = (value, noun) => `${count(value)} ${noun}${Number(value) === 1 ? "" : "s"}`;

/** Describe the point of a backup that is shown; "" if the source is not a backup. */
export const pointOf = (point) => (point ? `point ${count(point.sequence)} of a backup, taken ${time(point.taken_ms, "minute")}` : "");

export function bytes(value) {
  if (value == null) return "–";
  let left = Number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (left < 1024 || unit === "TiB") return unit === "B" ? `${count(left)} B` : `${left.toFixed(1)} ${unit}`;
    left /= 1024;
  }
  return "";
}
