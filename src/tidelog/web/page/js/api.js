// Questions to the server. Every one can be given up: a later question of the same asker takes the place of an earlier one.

import { el } from "./dom.js";

/** An error as the server says it: what, where, found, expected. */
export class Problem extends Error {
  constructor({ what, where, found, expected }, status = 0) {
    super(what);
    Object.assign(this, { what, where, found, expected, status });
  }
}

/** The address of an endpoint, without the parameters that are empty. */
export function address(endpoint, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return `api/${endpoint}${given.length ? `?${query}` : ""}`;
}

async function problemOf(response) {
  try {
    return new Problem((await response.json()).error, response.status);
  } catch {
    const what = response.status === 403 ? "the session of this page has ended" : `the server answered ${response.status}`;
    const expected = response.status === 403 ? "open the address that `tidelog ui` printed again" : undefined;
    return new Problem({ what, expected }, response.status);
  }
}

/** Ask once; raises Problem, or AbortError once `signal` is aborted. */
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

/** An asker: its latest question gives up the one before. `ask.stop()` gives up the last. */
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

/** A problem for people. Anything that is no Problem is a fault of this page, and goes to the console, too. */
export function shownProblem(error, retry) {
  if (!(error instanceof Problem)) console.error(error);
  const details = [
    ["where", error.where],
    ["found", error.found],
    ["expected", error.expected],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el(
    "div",
    { class: "problem", role: "alert" },
    el("p", {}, el("strong", {}, error.what ?? `The page failed: ${error.message}`)),
    details.length > 0 && el("dl", {}, details.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
    retry && el("button", { type: "button", onclick: retry }, "Try again"),
  );
}
