// The page: its header, the view that the address names, and keyboard shortcuts.

import { ask, isAborted, shownProblem } from "./api.js";
import { announce, choice, el, put } from "./dom.js";
import { chooseZone, chosenZone } from "./format.js";
import { toggleHelp, watchKeys } from "./keys.js";
import { change, current, linkTo } from "./state.js";
import { groupView, groupsView } from "./groups.js";
import { topicView } from "./topic.js";
import { topicsView } from "./topics.js";

/** `key(params)` identifies what a view shows; `open(root, params, server)` shows it, and returns {title, update, close}. */
const VIEWS = { topics: topicsView, topic: topicView, groups: groupsView, group: groupView };

const main = document.getElementById("main");
let asked = null;
let server = null;
let shown = { key: null, view: null };

function frame({ view, params }) {
  const source = server.sources.find((one) => String(one.id) === String(params.source)) ?? server.sources[0];
  const tabs = [
    ["topics", "Topics", ["topics", "topic"]],
    ["groups", "Groups", ["groups", "group"]],
  ];
  put(
    document.getElementById("nav"),
    tabs.map(([target, name, views]) => el("a", { href: linkTo(target), "aria-current": views.includes(view) ? "page" : undefined }, name)),
  );
  const settings = document.getElementById("settings");
  if (settings.contains(document.activeElement)) return;
  const sources = choice(server.sources.map((one) => [String(one.id), one.address]), String(source.id), {
    "aria-label": "Source",
    onchange: (event) => (location.hash = linkTo("topics", { source: event.target.value })),
  });
  const zone = el("input", {
    list: "zones", value: chosenZone(), "aria-label": "Time zone", autocomplete: "off", spellcheck: "false", size: 14,
    onfocus: fillZones,
    onchange: (event) => change({ tz: event.target.value === server.zone ? undefined : event.target.value }),
  });
  put(
    settings,
    server.sources.length > 1 ? sources : el("span", { class: "address", title: source.address }, source.address),
    zone,
    el("datalist", { id: "zones" }),
    el("button", { type: "button", class: "round", "aria-label": "Keys", title: "Keys (?)", onclick: toggleHelp }, "?"),
  );
}

function fillZones() {
  const list = document.getElementById("zones");
  if (!list.children.length) put(list, [server.zone, "UTC", ...Intl.supportedValuesOf("timeZone")].map((name) => el("option", { value: name })));
}

async function render() {
  try {
    server = await (asked ??= ask("sources", {}));
  } catch (error) {
    asked = null;
    put(main, shownProblem(error, render));
    return;
  }
  const here = current();
  chooseZone(here.params.tz ?? server.zone);
  here.params.source ??= String(server.sources[0].id);
  frame(here);
  const view = VIEWS[here.view];
  if (!view) {
    put(main, el("h1", {}, "There is no such view"), el("p", {}, el("a", { href: linkTo("topics") }, "All topics")));
    return;
  }
  const key = JSON.stringify([here.view, here.params.source, view.key(here.params)]);
  try {
    if (key !== shown.key) {
      shown.view?.close?.();
      shown = { key, view: null };
      const opened = view.open(main, here.params, server);
      document.title = opened.title;
      shown.view = opened;
      announce(opened.title);
      window.scrollTo(0, 0);
    }
    await shown.view.update(here.params);
  } catch (error) {
    if (!isAborted(error)) put(main, shownProblem(error, () => { shown = { key: null, view: null }; render(); }));
  }
}

document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", render);
watchKeys();
render();
