// A part of a topic that shows the answer to one request, which is sent again when its parameters change.

import { asker, isAborted, shownProblem } from "./api.js";
import { el, put } from "./dom.js";

const AGAIN_MS = 300; // Partial responses are requested again.

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
  let latest = null;
  async function update(params) {
    latest = params;
    head?.(params);
    const wanted = wantedOf(params);
    const now = JSON.stringify(wanted);
    if (now === key) {
      if (answer) put(results, draw(answer, params));
      return;
    }
    key = now;
    answer = null;
    ask.stop();
    put(results, wanted ? el("p", { class: "quiet" }, "Loading …") : none);
    try {
      if (!wanted) return;
      let found;
      do {
        answer = found = await ask(endpoint, wanted);
        put(results, draw(found, latest)); // The order of rows, for example, may have changed meanwhile.
        if (!found.pending) return;
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      } while (answer === found);
    } catch (error) {
      if (!isAborted(error)) put(results, shownProblem(error, () => { key = null; update(latest); }));
    }
  }
  return { update, close: () => { answer = null; ask.stop(); } };
}
