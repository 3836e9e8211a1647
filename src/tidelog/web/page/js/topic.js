// One topic: its numbers, its time axis, the range, and below them one of the parts.

import { asker, isAborted, shownProblem } from "./api.js";
import { bounded } from "./axis.js";
import { cutPart } from "./cut.js";
import { el, put } from "./dom.js";
import { exportPart } from "./export.js";
import { bytes, count, counted, span, time } from "./format.js";
import { lookupPart } from "./lookup.js";
import { RangeForm } from "./range.js";
import { recordsPart } from "./records.js";
import { retentionPart } from "./retention.js";
import { segmentsPart } from "./segment_list.js";
import { change, linkTo, linkWith } from "./state.js";
import { tailPart } from "./tail.js";
import { Timeline } from "./timeline.js";

/** Each part: a name, and open(root, topic) → {update(params), close()}. */
const PARTS = {
  records: { name: "Records", open: recordsPart },
  tail: { name: "Live", open: tailPart },
  lookup: { name: "Find a time", open: lookupPart },
  cut: { name: "Cut by offsets", open: cutPart },
  retention: { name: "Retention", open: retentionPart },
  segments: { name: "Segments", open: segmentsPart },
  export: { name: "Export", open: exportPart },
};

/** What other views' tables have in the address is not for the next part. */
const OF_PART = { after: undefined, record: undefined, sort: undefined, desc: undefined, page: undefined };

function facts(topic) {
  const items = [
    counted(topic.partitions.length, "partition"),
    topic.records !== undefined && topic.records !== null && counted(topic.records, "record"),
    topic.bytes !== undefined && bytes(topic.bytes),
    topic.first_ms !== null && topic.first_ms !== undefined && `${time(topic.first_ms, "minute")} to ${time(topic.last_ms, "minute")} (${span(topic.last_ms - topic.first_ms)})`,
  ];
  return items.filter(Boolean).join(" · ");
}

function notes(topic) {
  const all = topic.partitions.flatMap((one) => (one.notes ?? []).map((note) => `Partition ${one.partition}: ${note}`));
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
  open(root, params) {
    const ask = asker();
    const total = asker();
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

    function frame() {
      const whole = { from: bounded(topic.first_ms ?? 0), to: bounded((topic.last_ms ?? -1) + 1) };
      range = new RangeForm();
      const timed = topic.first_ms !== null && topic.first_ms !== undefined;
      if (timed) timeline = new Timeline(whole, topic.partitions.map((one) => one.partition), wanted);
      const extra = [notes(topic), config(topic)].filter(Boolean);
      put(above, timed ? [range.root, timeline.root] : el("p", { class: "empty" }, topic.records ? "No record here has a timestamp: there is no time axis." : "There are no records here yet."), extra.length > 0 && el("div", { class: "extra" }, extra));
    }

    async function showTotal(now) {
      const key = JSON.stringify([now.start, now.end, now.partitions]);
      if (key === totalOf || !timeline) return;
      totalOf = key;
      if (now.start === undefined && now.end === undefined) {
        total.stop();
        range.total.textContent = "";
        return;
      }
      range.total.textContent = "Counting …";
      try {
        const start = now.start ?? bounded(topic.first_ms);
        const end = now.end ?? bounded(topic.last_ms + 1);
        const answer = await total("counts", { ...wanted, partitions: now.partitions, start, end, buckets: 1 });
        const sum = answer.counts.reduce((one, other) => one + other, 0);
        put(range.total, el("strong", {}, count(sum)), ` ${sum === 1 ? "record" : "records"} in ${span(end - start)}`, answer.exact === false && " (estimated)");
      } catch (error) {
        if (!isAborted(error)) range.total.textContent = `not counted: ${error.message}`;
      }
    }

    async function update(now) {
      try {
        if (!topic) {
          topic = await ask("topic", wanted);
          topic.wanted = wanted;
          summary.textContent = facts(topic);
          frame();
        }
      } catch (error) {
        if (isAborted(error)) return;
        put(summary);
        put(tabs);
        put(below, shownProblem(error, () => update(now)));
        return;
      }
      range.update(now);
      timeline?.update(now);
      showTotal(now);
      const name = now.part in PARTS ? now.part : "records";
      const chosen = now.partitions !== undefined && el("span", { class: "chosen" }, `partition ${now.partitions} `, el("button", { type: "button", class: "round", "aria-label": "All partitions", title: "All partitions", onclick: () => change({ partitions: undefined, after: undefined }) }, "×"));
      put(tabs, Object.entries(PARTS).map(([key, one], at) => el("a", { href: linkWith({ ...OF_PART, part: key === "records" ? undefined : key }), "data-key": at + 1, "aria-current": key === name ? "page" : undefined }, one.name)), chosen);
      if (part.name !== name) {
        part.view?.close?.();
        put(below);
        part = { name, view: PARTS[name].open(below, topic) };
      }
      await part.view.update(now);
    }

    return {
      title: `${params.topic} – Tidelog`,
      update,
      close: () => {
        ask.stop();
        total.stop();
        timeline?.close();
        part.view?.close?.();
      },
    };
  },
};
