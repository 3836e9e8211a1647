// The page's state is in the address: `#/topic?source=0&topic=orders&start=…`. So every view has a link, and Back works.

import { withQuery } from "./api.js";

/** Parameters that are kept when another view is opened. */
const KEPT = ["source", "tz"];

export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { view: path || "topics", params: Object.fromEntries(new URLSearchParams(query)) };
}

/** Return a link to another view, with the same source and zone. */
export function linkTo(view, params = {}) {
  const here = current().params;
  return withQuery(`#/${view}`, { ...Object.fromEntries(KEPT.map((name) => [name, here[name]])), ...params });
}

/** Return a link to this view with some parameters changed; undefined removes a parameter. */
export function linkWith(changes) {
  const { view, params } = current();
  return withQuery(`#/${view}`, { ...params, ...changes });
}

/** Change some parameters. This adds an entry to the browser's history, except with `replace`. */
export function change(changes, { replace = false } = {}) {
  const target = linkWith(changes);
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, "", target);
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = target;
  }
}
