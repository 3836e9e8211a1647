// A part of a topic that shows the answer to one request, which is sent again when its parameters change.

import { asker, isAborted, shownProblem } from "./api.js";
import { el, put } from "./dom.js";

/**
 * `wantedOf(params)` returns the request's parameters, or null to show `none` instead. `draw(answer, params)` returns the nodes
 * for the answer, and is called whenever the address changes. `head(params)` is called first.
 */
export function askedPart(root, { endpoint, wantedOf, draw, head, none }) {
  const ask = asker();
  const results = el("div", { class: "results" });
  root.append(results);
  let key = null;
  let answer = null;
  async function update(params) {
    head?.(params);
    const wanted = wantedOf(params);
    if (wanted === null) {
      key = null;
      put(results, none);
      return;
    }
    const now = JSON.stringify(wanted);
    try {
      if (now !== key) {
        key = now;
        answer = null;
        put(results, el("p", { class: "quiet" }, "Loading …"));
        answer = await ask(endpoint, wanted);
      }
      if (answer) put(results, draw(answer, params));
    } catch (error) {
      if (!isAborted(error)) put(results, shownProblem(error, () => { key = null; update(params); }));
    }
  }
  return { update, close: () => ask.stop() };
}
