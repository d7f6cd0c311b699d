/* Server-sent events by fetch, which can send a key. A lost connection is opened again behind the last event. */

import { Problem, askForKey, headers } from "./api.js";

const SILENCE = 30_000; // milliseconds without a heartbeat: the connection is lost
const LONGEST = 5_000; // between two attempts

/** Calls tell(name, data, id) for each event and state("live" | "reconnecting" | "ended" | Problem) when that changes.
    `last`: the event to go on behind; "0-0": all that are kept; null: none of those before now */
export function follow(path, tell, state, last = null) {
  let ended = false, controller = null, failures = 0;

  const wait = () => new Promise((resolve) => setTimeout(resolve, Math.min(LONGEST, 250 * 2 ** failures++)));

  async function once() {
    controller = new AbortController();
    let watch = setTimeout(() => controller.abort(), SILENCE);
    try {
      const answer = await fetch(path, {
        headers: headers(last ? { "Last-Event-ID": last } : {}),
        signal: controller.signal,
        cache: "no-store",
      });
      if (answer.status === 401) return await askForKey();
      if ([404, 410].includes(answer.status)) {
        ended = true;
        return state(new Problem(answer.status, await answer.json()));
      }
      if (!answer.ok) throw new Problem(answer.status, {});
      failures = 0;
      state("live");
      for await (const event of parsed(answer.body)) {
        clearTimeout(watch);
        watch = setTimeout(() => controller.abort(), SILENCE);
        if (!event.name) continue;
        last = event.id;
        if (event.name === "end") {
          ended = true;
          return state("ended");
        }
        tell(event.name, JSON.parse(event.data), event.id);
      }
    } finally {
      clearTimeout(watch);
    }
  }

  (async () => {
    while (!ended) {
      try {
        await once();
      } catch (error) {
        if (!(error instanceof TypeError || error instanceof DOMException || error instanceof Problem)) throw error;
      }
      if (ended) return;
      state("reconnecting");
      await wait();
    }
  })();
  return () => {
    ended = true;
    controller?.abort();
  };
}

/** {name, id, data} of each event; a comment has no name */
async function* parsed(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
      const event = { name: "", id: null, data: "" };
      for (const line of buffer.slice(0, end).split("\n")) {
        const [field, ...rest] = line.split(": "), text = rest.join(": ");
        if (field === "event") event.name = text;
        else if (field === "id") event.id = text;
        else if (field === "data") event.data += text;
      }
      buffer = buffer.slice(end + 2);
      yield event;
    }
  }
}
