// A part of a topic that is one question: asked again when what it depends on changes.

import { asker, isAborted, shownProblem } from "./api.js";
import { el, put } from "./dom.js";

/**
 * `wantedOf(params)` is the question, null if there is none yet; `draw(answer, params)` makes its nodes, again whenever the
 * address changes; `head(params)` is called first.
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
