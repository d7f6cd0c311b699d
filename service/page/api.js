/* Requests: the API key of this tab, problems (RFC 9457) as errors. */

const KEY = "horocycle-key";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `status ${status}`);
    Object.assign(this, { status, title: body.title ?? "Something went wrong", type: body.type ?? "", members: body });
  }
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const headers = (more = {}) => (hasKey() ? { ...more, Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : more);

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
    said.textContent = hasKey() ? "That key was refused." : "";
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
