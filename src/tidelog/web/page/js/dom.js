// Creates elements. Data from a log is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((one) => one != null && one !== false));
  return node;
}

/** Create an HTML element. Functions such as `onclick` become listeners; children are nodes or text. */
export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);

export const svg = (tag, props = {}, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export function put(node, ...children) {
  node.replaceChildren();
  return fill(node, {}, children);
}

/** Tell a screen reader what has changed. */
export function announce(text) {
  document.getElementById("status").textContent = text;
}

export const field = (label, control, hint) => el("label", { class: "field", title: hint }, el("span", {}, label), control);

/** Create a select. `options` are pairs [value, text]. */
export function choice(options, value, props = {}) {
  const node = el("select", props, options.map(([key, text]) => el("option", { value: key }, text)));
  node.value = value ?? options[0][0];
  return node;
}

/** Call `then` with the width of `node` whenever the width changes. Return a function that ends this. */
export function onWidth(node, then) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    const now = Math.floor(node.clientWidth);
    if (now && now !== width) {
      width = now;
      requestAnimationFrame(() => then(width));
    }
  });
  observer.observe(node);
  return () => observer.disconnect();
}
