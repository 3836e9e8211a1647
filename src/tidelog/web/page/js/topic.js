// One topic: its figures, its time axis, the range, and below them one of the parts.

import { asker, isAborted, shownProblem } from "./api.js";
import { bounded } from "./axis.js";
import { cutPart } from "./cut.js";
import { el, put } from "./dom.js";
import { exportPart } from "./export.js";
import { extentOf } from "./extent.js";
import { bytes, count, counted, pointOf, span, time } from "./format.js";
import { lookupPart } from "./lookup.js";
import { RangeForm } from "./range.js";
import { recordsPart } from "./records.js";
import { retentionPart } from "./retention.js";
import { segmentsPart } from "./segment_list.js";
import { change, current, linkTo, linkWith } from "./state.js";
import { tailPart } from "./tail.js";
import { Timeline } from "./timeline.js";

/** The parts. `open(root, topic)` returns {update(params), close()}; a part with `ofFiles` is not shown for brokers. */
const PARTS = {
  records: { name: "Records", open: recordsPart },
  tail: { name: "Live", open: tailPart },
  lookup: { name: "Find a time", open: lookupPart },
  cut: { name: "Cut by offsets", open: cutPart },
  retention: { name: "Retention", open: retentionPart, ofFiles: true },
  segments: { name: "Segments", open: segmentsPart, ofFiles: true },
  export: { name: "Export", open: exportPart },
};

/** Parameters of one part, which are removed when another part is opened. */
const OF_PART = { after: undefined, record: undefined, sort: undefined, desc: undefined, page: undefined };

function sums(all) {
  const time = (name, pick) => all.reduce((found, { [name]: one }) => (one == null ? found : pick(found ?? one, one)), null);
  return {
    pending: all.filter((one) => one.pending).length,
    records: all.reduce((sum, one) => sum + Number(one.end ?? 0) - Number(one.log_start ?? 0), 0),
    bytes: all.reduce((sum, one) => sum + Number(one.bytes ?? 0), 0),
    first_ms: time("first_ms", Math.min),
    last_ms: time("last_ms", Math.max),
  };
}

function facts(topic) {
  const items = [
    counted(topic.partitions.length, "partition"),
    counted(topic.records, "record"),
    bytes(topic.bytes),
    topic.first_ms != null && `${time(topic.first_ms, "minute")} to ${time(topic.last_ms, "minute")} (${span(topic.last_ms - topic.first_ms)})`,
    pointOf(topic.point),
    topic.pending > 0 && `${counted(topic.pending, "partition")} not read`,
  ];
  return items.filter(Boolean).join(" · ");
}

function notes(topic) {
  const missing = (topic.missing ?? []).map((one) => `${one} is missing, although the folder once had it`);
  const all = topic.partitions.flatMap((one) => (one.notes ?? []).map((note) => `Partition ${one.partition}: ${note}`)).concat(missing);
  if (!all.length) return null;
  return el("details", { class: "note" }, el("summary", {}, counted(all.length, "note")), el("ul", {}, all.slice(0, 100).map((note) => el("li", {}, note))));
}

function config(topic) {
  const entries = Object.entries(topic.config ?? {});
  if (!entries.length) return null;
  return el("details", { class: "config" }, el("summary", {}, "Configuration"), el("dl", { class: "facts" }, entries.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])));
}

export const topicView = {
  key: (params) => params.topic,
  open(root, params, server) {
    const hasFiles = server.sources.find((one) => String(one.id) === params.source)?.kind === "folder";
    const parts = Object.fromEntries(Object.entries(PARTS).filter(([, one]) => hasFiles || !one.ofFiles));
    const ask = asker();
    const total = asker();
    const extent = asker();
    const wanted = { source: params.source, topic: params.topic };
    const summary = el("p", { class: "quiet facts-line" }, "Loading …");
    const above = el("div", {});
    const below = el("div", { class: "part" });
    const tabs = el("nav", { class: "tabs", "aria-label": "Parts of the topic" });
    let topic = null;
    let timeline = null;
    let range = null;
    let part = { name: null, view: null };
    let totalOf = "";
    put(root, el("p", { class: "crumbs" }, el("a", { href: linkTo("topics") }, "Topics")), el("h1", { class: "topic-name" }, params.topic), summary, above, tabs, below);

    /** Request the remaining partitions: the server returns at most a thousand in a response. */
    async function others() {
      if (!topic.more) return;
      while (topic.more) {
        summary.textContent = `${counted(topic.total, "partition")} · ${count(topic.partitions.length)} read …`;
        const next = await ask("topic", { ...wanted, after: topic.partitions.at(-1)?.partition });
        topic.partitions.push(...next.partitions);
        Object.assign(topic, sums(topic.partitions), { more: next.more });
        if (timeline) timeline.grow(topic.partitions.map((one) => one.partition), known());
        else frame();
      }
      await update(current().params);
    }

    const read = () => others().then(() => timeline && widen()).catch((error) => isAborted(error) || put(summary, shownProblem(error)));

    /** Show the figures. The button requests them again if some partitions have none because they have no leader. */
    function showFacts() {
      put(summary, facts(topic), topic.pending > 0 && [" ", el("button", { type: "button", onclick: () => { Object.assign(topic, { partitions: [], more: true }); read(); } }, "Try again")]);
    }

    const known = () => ({ from: bounded(topic.first_ms ?? 0), to: bounded((topic.last_ms ?? -1) + 1) });

    function frame() {
      range = new RangeForm();
      const timed = topic.first_ms != null;
      if (timed) timeline = new Timeline(known(), hasFiles ? topic.partitions.map((one) => one.partition) : [], wanted);
      const extra = [notes(topic), config(topic)].filter(Boolean);
      put(above, timed ? [range.root, timeline.root] : el("p", { class: "empty" }, topic.records ? "No record here has a timestamp, so there is no time axis." : "There are no records here yet."), extra.length > 0 && el("div", { class: "extra" }, extra));
    }

    /** Extend the axis to all records. At first it has only the times of each partition's first and last batch. */
    async function widen() {
      try {
        const { all, main, in_time } = await extentOf(extent, wanted, known());
        timeline.extend(all, main);
        Object.assign(topic, { first_ms: all.from, last_ms: all.to - 1 });
        showFacts();
        if (!in_time) throw Error("the server ran out of time");
      } catch (error) {
        if (!isAborted(error)) above.append(el("p", { class: "note" }, `Some records may be outside the time axis: ${error.message}`));
      }
    }

    async function showTotal(now, exact) {
      const key = JSON.stringify([now.start, now.end, now.partitions, exact]);
      if (key === totalOf || !timeline) return;
      totalOf = key;
      if (now.start === undefined && now.end === undefined) {
        total.stop();
        range.total.textContent = "";
        return;
      }
      range.total.textContent = "Counting …";
      try {
        const answer = await total("counts", { ...wanted, partitions: now.partitions, start: now.start, end: now.end, exact, buckets: 1 });
        // A range may begin after the last record, or end before the first.
        const length = answer.end_ms - answer.start_ms;
        const sum = answer.counts.reduce((one, other) => one + other, 0);
        put(range.total, el("strong", {}, count(sum)), ` ${sum === 1 ? "record" : "records"}${length > 0 ? ` in ${span(length)}` : ""}`, answer.exact === false && [" (estimated) ", el("button", { type: "button", title: answer.why.join(", "), onclick: () => showTotal(now, 1) }, "Count exactly")]);
      } catch (error) {
        if (!isAborted(error)) range.total.textContent = `not counted: ${error.message}`;
      }
    }

    async function update(now) {
      try {
        if (!topic) {
          topic = await ask("topic", wanted);
          Object.assign(topic, sums(topic.partitions), { wanted });
          frame();
          read();
        }
      } catch (error) {
        if (isAborted(error)) return;
        put(summary);
        put(tabs);
        put(below, shownProblem(error, () => update(now)));
        return;
      }
      if (!topic.more) showFacts();
      range.update(now);
      timeline?.update(now);
      showTotal(now);
      const name = now.part in parts ? now.part : "records";
      const chosen = now.partitions !== undefined && el("span", { class: "chosen" }, `partition ${now.partitions} `, el("button", { type: "button", class: "round", "aria-label": "All partitions", title: "All partitions", onclick: () => change({ partitions: undefined, after: undefined }) }, "×"));
      put(tabs, Object.entries(parts).map(([key, one], at) => el("a", { href: linkWith({ ...OF_PART, part: key === "records" ? undefined : key }), "data-key": at + 1, "aria-current": key === name ? "page" : undefined }, one.name)), chosen);
      if (part.name !== name) {
        part.view?.close?.();
        put(below);
        part = { name, view: PARTS[name].open(below, topic) };
        const tab = tabs.querySelector("[aria-current]");
        tabs.scrollLeft = tab.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
      }
      await part.view.update(now);
    }

    return {
      title: `${params.topic} – Tidelog`,
      update,
      close: () => {
        ask.stop();
        total.stop();
        extent.stop();
        range?.ask.stop();
        timeline?.close();
        part.view?.close?.();
      },
    };
  },
};
