/* Elements of the page: numbers as text, links to the JSON behind a view, lines to copy. */

import { call, hasKey } from "./api.js";

const figures = new Intl.NumberFormat("en");
export const count = (n) => figures.format(Math.round(n)).replace(/,/g, "\u202f");
export const percent = (x, digits = 1) => (x == null ? "–" : `${(100 * x).toFixed(digits)}\u202f%`);
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** An element with attributes and children */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** The line that asks for a path, or sends JSON to it. Its key is named, never shown */
function line(path, json = null) {
  const key = hasKey() ? ' -H "Authorization: Bearer $HOROCYCLE_KEY"' : "", body = json === null ? "" : ` --json '${json.replaceAll("'", "'\\''")}'`;
  return `curl${key} '${location.origin}${path}'${body}`;
}

/** A button that copies what `text` gives then */
function copying(word, text, attributes) {
  const button = element("button", { type: "button", text: word, title: `Copy: ${text()}`, ...attributes });
  button.onclick = async () => {
    await copy(text());
    button.textContent = "copied";
    setTimeout(() => (button.textContent = word), 1200);
  };
  return button;
}

/** A link to the JSON behind a view, and a button that copies the curl line for it. A link sends no key, so with one the
    answer is fetched and opened */
export function twin(path, what = "JSON") {
  const link = element("a", { href: path, text: what });
  link.onclick = async (event) => {
    if (!hasKey()) return;
    event.preventDefault();
    const answer = URL.createObjectURL(await (await call(path)).blob());
    open(answer);
    setTimeout(() => URL.revokeObjectURL(answer), 60_000);
  };
  return element("span", { class: "twin" }, link, copying("curl", () => line(path), { "aria-label": `Copy the curl line for ${path}` }));
}

/** A curl line to read and to copy */
export function curl(path, json) {
  return element("span", { class: "curl" }, element("code", { text: line(path, json) }), copying("Copy", () => line(path, json), { class: "plain" }));
}

/** The clipboard is for secure contexts; elsewhere a selection is copied */
async function copy(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const field = element("textarea", { class: "copied" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
