// Shows the text of records, which is never markup. Invisible characters, and those that change the direction, are shown by name.

import { el } from "./dom.js";

// Control and zero-width characters, direction marks and overrides, line separators, tags, and lone surrogates.
const UNSEEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu;
const PREVIEW = 400;
const AT_ONCE = 65_536;

function nameOf(character) {
  const code = character.codePointAt(0);
  const digits = code.toString(16).padStart(code < 0x100 ? 2 : 4, "0");
  return { 9: "\\t", 10: "\\n", 13: "\\r" }[code] ?? (code < 0x100 ? `\\x${digits}` : `U+${digits.toUpperCase()}`);
}

/** Return the nodes for a text. With `lines`, line ends and tabs stay unchanged. */
export function seen(text, lines = false) {
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (lines && (match[0] === "\n" || match[0] === "\t")) continue;
    if (match.index > from) nodes.push(text.slice(from, match.index));
    nodes.push(el("span", { class: "unseen" }, nameOf(match[0])));
    from = match.index + match[0].length;
  }
  if (from < text.length) nodes.push(text.slice(from));
  return nodes;
}

const TOKEN = /"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+/g;

/** Return JSON with line ends and indentation. It is not parsed, because that would round large numbers. */
export function pretty(json) {
  let depth = 0;
  let out = "";
  let before = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  for (const [token] of json.matchAll(TOKEN)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      out += before === "{" || before === "[" ? token : line() + token;
    } else {
      if (before === "{" || before === "[" || before === ",") out += line();
      out += token === ":" ? ": " : token;
      if (token === "{" || token === "[") depth += 1;
    }
    before = token;
  }
  return out;
}

const spaced = (hex) => hex.replace(/../g, "$& ").trimEnd();

/** Return a hex dump: in each line an offset, 16 bytes, and the same bytes as ASCII. */
function dump(hex) {
  const rows = [];
  for (let at = 0; at < hex.length; at += 32) {
    const row = hex.slice(at, at + 32);
    const ascii = row.replace(/../g, (pair) => {
      const code = Number.parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    });
    rows.push(`${(at / 2).toString(16).padStart(6, "0")}  ${spaced(row).padEnd(47)}  ${ascii}`);
  }
  return rows.join("\n");
}

export function preview(value, as) {
  if (value.kind === "null") return el("span", { class: "null" }, "null");
  if (value.size === 0) return el("span", { class: "null" }, "empty");
  const text = as === "hex" ? undefined : value.text;
  const node = el("bdi", { class: "bytes", dir: "ltr" });
  if (text == null) node.append(el("span", { class: "hex" }, spaced((value.hex ?? "").slice(0, PREVIEW))));
  else node.append(...seen(text.slice(0, PREVIEW)));
  if (value.error) node.prepend(el("span", { class: "mark", title: value.error }, "not decoded"), " ");
  return node;
}

/** Return an element that shows a whole key or value as JSON, text or hex. `askHex` requests its bytes. */
export function whole(value, label, askHex) {
  if (value.kind === "null") return el("p", { class: "null" }, "null");
  if (value.size === 0) return el("p", { class: "null" }, "empty");
  const ways = [];
  if (value.kind === "json") ways.push(["JSON", async () => pretty(value.text)]);
  if (value.text !== undefined) ways.push(["Text", async () => value.text]);
  ways.push(["Hex", async () => dump(value.hex ?? (await askHex()).hex)]);
  const pre = el("pre", { class: "whole", tabindex: 0, role: "group", "aria-label": label, dir: "ltr" });
  const more = el("button", { type: "button", hidden: true }, "Show all of it");
  let all = "";
  let chosen = null;
  const show = async (way) => {
    chosen = way;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === way[0]));
    const found = await way[1]().catch((error) => error.message);
    if (chosen !== way) return;
    all = found;
    pre.replaceChildren(...seen(all.slice(0, AT_ONCE), true));
    more.hidden = all.length <= AT_ONCE;
  };
  more.addEventListener("click", () => {
    pre.replaceChildren(...seen(all, true));
    more.hidden = true;
  });
  const buttons = ways.map((way) => el("button", { type: "button", onclick: () => show(way) }, way[0]));
  show(ways[0]);
  return el(
    "div",
    {},
    value.decoded && el("p", { class: "note" }, `Decoded: ${value.decoded}`),
    value.error && el("p", { class: "note" }, `Shown undecoded: ${value.error}`),
    el("div", { class: "switch", role: "group", "aria-label": `${label} as` }, buttons),
    pre,
    more,
    value.cut && el("p", { class: "note" }, "Only the first part is shown; the download has all of it."),
  );
}
