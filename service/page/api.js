/* Requests: the API key of this tab, problems (RFC 9457) as errors, JSON twins with their curl lines. */

const KEY = "horocycle-key";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `status ${status}`);
    Object.assign(this, { status, title: body.title ?? "Something went wrong", type: body.type ?? "", members: body });
  }
}

export const headers = (more = {}) => {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
};

/** The answer to a request that succeeded. Without a key, or with a wrong one, the page asks for it and tries again. */
export async function call(path, { method = "GET", body, headers: more = {}, signal } = {}) {
  for (;;) {
    const sent = body === undefined ? {} : { "Content-Type": "application/json" };
    const answer = await fetch(path, {
      method,
      headers: headers({ ...sent, ...more }),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    if (answer.status === 401) await askForKey();
    else if (answer.ok || answer.status === 304) return answer;
    else throw new Problem(answer.status, await answer.json().catch(() => ({})));
  }
}

export const get = async (path, options) => (await call(path, options)).json();
export const post = async (path, body) => {
  const answer = await call(path, { method: "POST", body, headers: { "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) } });
  return answer.json();
};

let asking = null;

/** Once for all requests that wait for it */
export function askForKey() {
  asking ??= new Promise((resolve) => {
    document.body.classList.add("locked");
    const dialog = document.querySelector("#key");
    const form = dialog.querySelector("form"), field = form.querySelector("input"), said = form.querySelector(".said");
    said.textContent = sessionStorage.getItem(KEY) ? "That key was refused." : "";
    sessionStorage.removeItem(KEY);
    field.value = "";
    if (!dialog.open) dialog.showModal();
    dialog.oncancel = (event) => event.preventDefault();
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      sessionStorage.setItem(KEY, field.value.trim());
      field.value = "";
      dialog.close();
      document.body.classList.remove("locked");
      asking = null;
      resolve();
    };
  });
  return asking;
}

/** A link to the JSON behind a view, and a button that copies the curl line for it */
export function twin(path, what = "JSON") {
  const place = document.createElement("span");
  place.className = "twin";
  const link = document.createElement("a");
  link.href = path;
  link.textContent = what;
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "curl";
  const line = () => {
    const key = sessionStorage.getItem(KEY) ? " -H 'Authorization: Bearer $HOROCYCLE_KEY'" : "";
    return `curl${key} '${location.origin}${path}'`;
  };
  button.title = `Copy: ${line()}`;
  button.setAttribute("aria-label", `Copy the curl line for ${path}`);
  button.onclick = async () => {
    await copy(line());
    button.textContent = "copied";
    setTimeout(() => (button.textContent = "curl"), 1200);
  };
  place.append(link, button);
  return place;
}

/** The clipboard is for secure contexts; elsewhere a selection is copied */
async function copy(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export const count = (n) => Math.round(n).toLocaleString("en").replace(/,/g, "\u202f");
export const percent = (x, digits = 1) => (x == null ? "–" : `${(100 * x).toFixed(digits)}\u202f%`);

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
