// Records as they arrive. Only the newest are kept. They are drawn a few times a second, however many arrive.

import { address } from "./api.js";
import { el, put } from "./dom.js";
import { Filters, filtersOf } from "./filters.js";
import { count, counted } from "./format.js";
import { recordRow, recordTable } from "./record_rows.js";
import { change } from "./state.js";

const KEPT = 200;
const DRAW_MS = 250;

export function tailPart(root, topic) {
  const filters = new Filters(["order"]);
  const state = el("p", { class: "quiet", role: "status" }, "Connecting …");
  const pause = el("button", { type: "button", "data-key": " ", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    draw();
  } }, "Pause");
  const { node, body } = recordTable(`New records of ${topic.wanted.topic}`);
  const empty = el("p", { class: "empty" }, topic.point ? "Nothing new. If this is the newest point, the next point's records appear here." : "Nothing new yet. Records appear here as they are written, the newest first.");
  put(root, filters.root, el("div", { class: "bar" }, pause, state), empty, node);
  node.hidden = true;

  let events = null;
  let shown = null;
  let paused = false;
  let fresh = [];
  let params = {};
  let seenSoFar = 0;
  let dropped = 0;
  let problem = "";
  let isOn = false;
  let timer = 0;

  function draw() {
    const words = [isOn ? counted(seenSoFar, "new record") : "Connecting …"];
    if (dropped) words.push(`${count(dropped)} more arrived too fast to be shown`);
    if (paused) words.push(`paused, ${fresh.length < KEPT ? count(fresh.length) : `${KEPT} and more`} wait`);
    if (problem) words.push(problem);
    const text = words.join(" · ");
    if (state.textContent !== text) state.textContent = text;
    if (paused || fresh.length === 0) return;
    const rows = fresh.slice(-KEPT).map((record) => recordRow(record, params, (one) => change({ part: undefined, record: `${one.partition}:${one.offset}`, start: undefined, end: undefined, after: undefined })));
    fresh = [];
    body.prepend(...rows.reverse());
    while (body.childElementCount > KEPT) body.lastElementChild.remove();
    empty.hidden = true;
    node.hidden = false;
  }

  function listen(wanted) {
    events?.close();
    problem = "";
    isOn = false;
    events = new EventSource(address("tail", wanted));
    events.addEventListener("start", () => {
      isOn = true;
      problem = "";
    });
    events.addEventListener("record", (event) => {
      problem = "";
      seenSoFar += 1;
      fresh.push(JSON.parse(event.data));
      if (fresh.length > 2 * KEPT) fresh = fresh.slice(-KEPT);
    });
    events.addEventListener("dropped", (event) => {
      dropped += Number(JSON.parse(event.data).offsets);
    });
    events.addEventListener("beat", () => {
      problem = "";
    });
    events.addEventListener("problem", (event) => {
      problem = JSON.parse(event.data).what;
    });
    events.addEventListener("error", () => {
      if (!problem) problem = events.readyState === EventSource.CLOSED ? "the server ended the stream, or refused the search" : "the connection was lost; reconnecting";
    });
  }

  return {
    update(now) {
      params = now;
      filters.update(now);
      const { order, ...of } = filtersOf(now);
      const wanted = { ...topic.wanted, ...of };
      const key = JSON.stringify(wanted);
      if (key === shown) return;
      shown = key;
      fresh = [];
      seenSoFar = 0;
      dropped = 0;
      put(body);
      empty.hidden = false;
      node.hidden = true;
      listen(wanted);
      clearInterval(timer);
      timer = setInterval(draw, DRAW_MS);
    },
    close() {
      clearInterval(timer);
      events?.close();
    },
  };
}
