/* What is drawn, in words: the heading, the state, the legend, the note below the disk. */

import { count, curl, element, percent } from "./html.js";
import { markOf } from "./palette.js";

const $ = (name) => document.getElementById(name);
const PAUSE = 300; // milliseconds between two tellings

export class Words {
  constructor(feed) {
    Object.assign(this, { feed, last: -PAUSE, counts: [] });
    this.heading();
    this.first();
  }

  heading() {
    const { name, id, algorithm, dimension, curvature, budget, labels } = this.feed.session, title = name || id;
    document.title = `${title} · Horocycle`;
    $("name").textContent = title;
    const facts = [algorithm.replace("_", " "), `${dimension} dimension${dimension > 1 ? "s" : ""}`, `${labels.length} labels`];
    if (curvature !== 1) facts.push(`curvature −${curvature}`);
    if (typeof budget === "number") facts.push(`budget ${budget.toPrecision(3)}`);
    $("kind").textContent = facts.join(" · ");
    $("legend").replaceChildren(...labels.map((label, k) => {
      this.counts[k] = element("small");
      return element("span", { role: "listitem", title: String(label) }, markOf(k), element("span", { text: String(label) }), this.counts[k]);
    }));
    const long = $("legend").scrollHeight > $("legend").clientHeight + 1;
    $("legend").classList.toggle("long", long);
    $("legend").tabIndex = long ? 0 : -1; // who has no wheel scrolls it by keys
    this.state();
    this.tell();
  }

  state() {
    const { connection, status, session, newest } = this.feed, shown = connection && connection !== "live" ? connection : status;
    const wanted = session.reference?.learn?.warmup;
    const text = {
      warming: wanted ? `warming: ${count(Math.min(newest.observed, wanted))} of ${count(wanted)}` : "warming",
      replaying: `replaying ${percent(session.progress ?? 0, 0)}`,
      reconnecting: "reconnecting…",
    }[shown] ?? shown;
    if ($("state").textContent === text) return;
    $("state").className = `pill ${shown}`;
    $("state").textContent = text;
  }

  /** The first point, for who has a session and nothing else */
  first() {
    const { session, base } = this.feed, point = Array.from({ length: session.dimension }, (_, i) => (i % 2 ? -0.2 : 0.1));
    if (session.dimension > 8) return;
    $("first").replaceChildren(curl(`${base}/observe`, JSON.stringify({ point, label: session.labels[0] })));
  }

  /** Soon, and not too often */
  tell() {
    this.telling ??= setTimeout(() => {
      this.telling = null;
      this.last = performance.now();
      this.note();
    }, Math.max(0, this.last + PAUSE - performance.now()));
  }

  note() {
    const { scene, newest, session, status } = this.feed, of = new Array(session.labels.length).fill(0);
    let drawn = 0;
    for (const row of scene.points.rows) {
      if (scene.until !== null && row.position >= scene.until) continue;
      of[row.label]++;
      drawn++;
    }
    this.counts.forEach((place, k) => (place.textContent = count(of[k])));
    const parts = [scene.said(), scene.frame.note ?? "", boundary(scene)];
    if (newest.observed > drawn && scene.until === null) parts.push(`Drawn: the newest ${count(drawn)} of ${count(newest.observed)} points.`);
    const text = parts.filter(Boolean).join(" ");
    $("told").textContent = text;
    $("disk").setAttribute("aria-label", `${count(drawn)} points of ${session.labels.length} classes. ${text}`);
    $("reference").hidden = !scene.references().length;
    $("nothing").hidden = newest.observed > 0 || status === "replaying";
  }
}

function boundary(scene) {
  const drawn = scene.drawn(), { boundary: found, threshold, kind } = drawn, ruler = scene.classifier?.ruler;
  if (threshold) return "The line is the strategic threshold, straight in the tangent space at the reference point; dotted, the geodesic through it. Where it is hatched no rational agent is seen.";
  if (found) return `The boundary${ruler ? ` is that of ${ruler.replace("_", " ")}, which has more than half of the vote:` : " is"} a ${found.name}${drawn.bands.length ? "; dotted, its margin" : ""}.`;
  return kind === "many" ? "Each tint is the class that a point there would get." : "";
}
