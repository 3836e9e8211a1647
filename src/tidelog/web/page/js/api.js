// Requests to the server. Each can be aborted: a new request of the same asker aborts the earlier one.

import { el } from "./dom.js";

/** An error, with the fields of the server's response: what, where, found, expected. */
export class Problem extends Error {
  constructor({ what, where, found, expected }, status = 0) {
    super(what);
    Object.assign(this, { what, where, found, expected, status });
  }
}

/** Return a path with its parameters. Empty ones are left out. */
export function withQuery(path, params) {
  const given = Object.entries(params).filter(([, value]) => value != null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export const address = (endpoint, params = {}) => withQuery(`api/${endpoint}`, params);

async function problemOf(response) {
  try {
    return new Problem((await response.json()).error, response.status);
  } catch {
    const what = response.status === 403 ? "the session of this page has ended" : `the server answered ${response.status}`;
    const expected = response.status === 403 ? "open the address that `tidelog ui` printed" : undefined;
    return new Problem({ what, expected }, response.status);
  }
}

/** Send a request and return its answer. Throws Problem, or AbortError if `signal` is aborted. */
export async function ask(endpoint, params, signal) {
  let response;
  try {
    response = await fetch(address(endpoint, params), { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ what: "the server does not answer", expected: "check that `tidelog ui` is still running" });
  }
  if (!response.ok) throw await problemOf(response);
  return response.json();
}

/** Return an asker: a function like `ask` that aborts its earlier request. `stop()` aborts the last one. */
export function asker() {
  let under = null;
  const one = (endpoint, params) => {
    under?.abort();
    under = new AbortController();
    return ask(endpoint, params, under.signal);
  };
  one.stop = () => under?.abort();
  return one;
}

export const isAborted = (error) => error.name === "AbortError";

/** Return the element that shows an error. An error that is not a Problem is a bug of this page, and is also logged. */
export function shownProblem(error, retry) {
  if (!(error instanceof Problem)) console.error(error);
  const details = [
    ["where", error.where],
    ["found", error.found],
    ["expected", error.expected],
  ].filter(([, value]) => value);
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("p", {}, el("strong", {}, error.what ?? `The page failed: ${error.message}`)),
    details.length > 0 && el("dl", {}, details.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
    retry && el("button", { type: "button", onclick: retry }, "Try again"),
  );
}
