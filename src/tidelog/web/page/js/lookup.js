// Shows how the offset for a time is found: the bar of each step is the part that the step above selected.

import { el, field, svg } from "./dom.js";
import { asker, isAborted, shownProblem } from "./api.js";
import { bytes, chosenZone, count, counted, time } from "./format.js";
import { askedPart } from "./part.js";
import { partitionChoice } from "./segment_list.js";
import { change, linkWith } from "./state.js";

const WIDE = 1000;
const MOST_BOXES = 60;

/** Draw a bar with a mark from `from` to `to`, below a funnel from the mark `above`. Marks and `cuts` are shares of the bar. */
function strip(above, from, to, cuts = [], past = 0, isLast = false) {
  const [top, height, low] = [48, 26, 100];
  const x = (share) => Math.round(Math.min(1, Math.max(0, share)) * WIDE);
  const left = Math.min(x(from), WIDE - 4);
  const right = Math.max(x(to), left + 4);
  const funnel = above && `M${x(above[0])} 0L${Math.max(x(above[1]), x(above[0]) + 4)} 0L${WIDE} ${top}L0 ${top}z`;
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDE} ${low}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    funnel && svg("path", { class: "funnel", d: funnel }),
    !isLast && svg("path", { class: "funnel", d: `M${left} ${top + height}H${right}V${low}H${left}z` }),
    svg("rect", { class: "box", x: 0, y: top, width: WIDE, height }),
    past > 0 && svg("rect", { class: "past", x: 0, y: top, width: x(past), height }),
    cuts.map((at) => svg("path", { class: "box", d: `M${x(at)} ${top}v${height}` })),
    svg("rect", { class: "hit", x: left, y: top, width: right - left, height }),
  );
}

const name = (path) => (path ? String(path).split("/").at(-1) : "");
const cutsOf = (parts) => Array.from({ length: Math.max(0, Math.min(parts, MOST_BOXES) - 1) }, (_, at) => (at + 1) / Math.min(parts, MOST_BOXES));

/** Return the start and end of a slot as shares of the index file. */
function slotMark(step) {
  const entries = Math.max(1, step.entries);
  return step.slot < 0 ? [0, 0.004] : [step.slot / entries, (step.slot + 1) / entries];
}

const VERDICTS = { "too early": "too early", "below log start": "below the log's start", "no timestamps": "without timestamps", searched: "searched", "no match": "no match after all", match: "has it" };

function segmentsStep(steps) {
  const last = steps.at(-1);
  const number = steps.reduce((sum, one) => sum + one.count, 0);
  const passed = steps.filter((one) => one.skipped === "too early").reduce((sum, one) => sum + one.count, 0);
  const words = [
    el("p", {}, `${counted(number, "segment")} looked at; ${VERDICTS[last.verdict] ?? last.verdict}: `, el("code", {}, name(last.file))),
    el("p", { class: "quiet" }, passed ? `${counted(passed, "earlier one")} ${passed === 1 ? "has" : "have"} no record that late. ` : "", last.largest_ms != null ? `Its largest timestamp, by the ${last.source}: ${time(last.largest_ms)}` : ""),
  ];
  const boxes = Math.min(number, MOST_BOXES);
  return { title: "Segments", words, mark: [(boxes - 1) / boxes, 1], cuts: cutsOf(boxes), past: (boxes - 1) / boxes };
}

/** Return what draws a look-up in an index; `early`, `entry` and `last` return its texts. */
const index = (title, early, entry, last) => (step) => ({
  title,
  words: [
    el("p", {}, step.slot < 0 ? `No entry of ${count(step.entries)} is ${early(step)}` : `Entry ${count(step.slot + 1)} of ${count(step.entries)}: ${entry(step)}`),
    step.slot >= 0 && el("p", { class: "quiet" }, `The last entry ${last(step)}.`),
  ],
  mark: slotMark(step), cuts: cutsOf(step.entries),
});

const atOrBelow = (step) => `at or below offset ${count(step.target_offset)}`;

const DRAWN = {
  time_index: index("Time index", () => "early enough: the search begins at the segment's start.", (step) => `${time(step.ms)} → offset ${count(step.offset)}`, () => "before the time"),
  offset_index: index("Offset index", (step) => `${atOrBelow(step)}: position 0`, (step) => `offset ${count(step.offset)} → position ${count(step.position)}`, atOrBelow),
  batches: (step) => ({
    title: "Batches",
    words: [
      el("p", {}, `${counted(step.batches, "batch header").replace("batchs", "batches")} read, ${count(step.opened)} opened`),
      el("p", { class: "quiet" }, `Positions ${count(step.start_position)} to ${count(step.end_position)} (${bytes(step.end_position - step.start_position)}) of `, el("code", {}, name(step.file))),
    ],
    mark: [Math.max(0, step.batches - 1) / Math.max(1, step.batches), 1], cuts: cutsOf(step.batches), past: Math.max(0, step.batches - 1) / Math.max(1, step.batches),
  }),
  record: (step) => {
    const span = Math.max(1, Number(step.last_offset) - Number(step.base_offset) + 1);
    const at = Number(step.offset) - Number(step.base_offset);
    return {
      title: "Record",
      words: [
        el("p", {}, `Offset ${count(step.offset)}, ${time(step.ms)}`),
        el("p", { class: "quiet" }, `In the batch of offsets ${count(step.base_offset)} to ${count(step.last_offset)} at position ${count(step.position)}.`),
      ],
      mark: [at / span, (at + 1) / span], cuts: cutsOf(span),
    };
  },
};

/** Return the steps to draw, in order. Adjacent segments are one step. */
function drawn(steps) {
  const found = [];
  for (let at = 0; at < steps.length; at++) {
    const { step } = steps[at];
    if (step === "segment") {
      const group = [];
      while (steps[at]?.step === "segment") group.push(steps[at++]);
      at -= 1;
      found.push(segmentsStep(group));
    } else if (step in DRAWN) found.push(DRAWN[step](steps[at]));
  }
  return found;
}

function picture({ steps, answer, read_bytes: read }, params) {
  let above = null;
  const items = drawn(steps).map((one, at, all) => {
    const item = el("li", {}, el("div", { class: "words" }, el("h2", {}, `${at + 1}. ${one.title}`), one.words), el("div", { class: "strip" }, strip(above, one.mark[0], one.mark[1], one.cuts, one.past, at === all.length - 1)));
    above = one.mark;
    return item;
  });
  const kafka = steps.find((one) => one.step === "kafka");
  const record = answer && answer.offset != null && answer.offset >= 0;
  const same = kafka && record && Number(kafka.offset) === Number(answer.offset);
  return [
    el("p", { class: "statement answer", role: "status" }, record ? ["The first record at or after the time is ", el("a", { href: linkWith({ part: undefined, record: `${params.lookup_partition ?? answer.partition ?? 0}:${answer.offset}`, start: undefined, end: undefined }) }, `offset ${count(answer.offset)}`), `, of ${time(answer.timestamp_ms)}.`] : "No record is at or after that time."),
    items.length > 0 ? el("ol", { class: "steps" }, items) : el("p", { class: "quiet" }, "Brokers do not report the steps of a search: they are shown only for a folder."),
    el("p", { class: "quiet" }, read != null && `${bytes(read)} read. `, kafka && (same ? "Apache Kafka finds the same record." : `Apache Kafka finds ${Number(kafka.offset) < 0 ? "no record" : `offset ${count(kafka.offset)}`}.`)),
  ];
}

export function lookupPart(root, topic) {
  const input = el("input", { type: "text", size: 24, placeholder: "yesterday 09:00", autocomplete: "off", spellcheck: "false", "data-search": true, "aria-label": "Time" });
  const place = el("span", {});
  const said = el("div", { class: "said" });
  const partitionOf = (params) => params.lookup_partition ?? (params.partitions ?? String(topic.partitions[0]?.partition ?? 0)).split(",")[0];
  const ask = asker();
  let shown = "";
  let at;
  const form = el("form", { class: "bar", onsubmit: submit }, field("Time", input), place, el("button", { class: "primary" }, "Find"), said);
  root.append(form);

  async function submit(event) {
    event.preventDefault();
    if (input.value.trim() === shown && at !== undefined) return;
    try {
      const { start } = await ask("time", { start: input.value.trim(), tz: chosenZone() });
      said.replaceChildren();
      change({ at: start?.ms });
    } catch (error) {
      if (!isAborted(error)) said.replaceChildren(shownProblem(error));
    }
  }

  const part = askedPart(root, {
    endpoint: "lookup",
    none: el("p", { class: "empty" }, "Type a time, or choose a range above to look up its start. The picture shows how the offset is found: by segments, time index, offset index and batches, down to the record."),
    head: (params) => {
      at = params.at ?? params.start;
      shown = at === undefined ? "" : time(at);
      if (document.activeElement !== input || params.at !== undefined) input.value = shown;
      if (!place.contains(document.activeElement)) place.replaceChildren(field("Partition", partitionChoice(topic, partitionOf(params), (value) => change({ lookup_partition: value }))));
    },
    wantedOf: (params) => ((params.at ?? params.start) === undefined ? null : { ...topic.wanted, partition: partitionOf(params), timestamp: params.at ?? params.start }),
    draw: (answer, params) => picture(answer, { ...params, lookup_partition: partitionOf(params) }),
  });
  return { update: part.update, close: () => { ask.stop(); part.close(); } };
}
