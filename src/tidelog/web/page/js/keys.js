// Keyboard shortcuts of the whole page. An element's attribute `data-key` names its key; `/` goes to the first search field.

import { el } from "./dom.js";

const HELP = [
  ["/", "search"],
  ["n, p", "next, previous page of a table"],
  ["1 … 8", "the parts of a topic: records, search of a time, …"],
  ["a", "the whole topic, no range"],
  ["z", "zoom to the range"],
  ["← →", "on the time axis: move the range"],
  ["Shift ← →", "on the time axis: make the range longer or shorter"],
  ["+ −", "on the time axis: zoom in and out"],
  ["Esc", "on the time axis: no range; elsewhere: close what is open"],
  ["?", "this list"],
];

let dialog = null;

export function toggleHelp() {
  if (!dialog) {
    dialog = el(
      "dialog",
      { "aria-labelledby": "keys-title" },
      el("h2", { id: "keys-title" }, "Keys"),
      el("dl", { class: "keys" }, HELP.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
      el("form", { method: "dialog" }, el("button", {}, "Close")),
    );
    document.body.append(dialog);
  }
  if (dialog.open) dialog.close();
  else dialog.showModal();
}

const takesText = (node) => node.closest("input, textarea, select, [contenteditable]") !== null;

export function watchKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (takesText(event.target) || (dialog?.open && event.key !== "?")) return;
    if (event.key === "?") toggleHelp();
    else if (event.key === "/") document.querySelector("main [data-search]")?.focus();
    else {
      const target = [...document.querySelectorAll("main [data-key]")].find((node) => node.dataset.key === event.key && !node.disabled);
      if (!target) return;
      target.click();
    }
    event.preventDefault();
  });
}
