/* What is known of the point under the pointer: where it is, what it was called, what it would be called now. */

import { Problem, get } from "./api.js";
import { count, element, percent } from "./html.js";
import { markOf } from "./palette.js";

const SHOWN = 3; // coordinates, and classes with their probabilities

export class Tip {
  constructor(place, feed) {
    Object.assign(this, { place, feed, asked: 0 });
  }

  /** row: of the scene, null for none; at: [px, py] within a square of this side */
  async show(row, at, side) {
    const { place, feed } = this, mine = ++this.asked;
    place.hidden = !row;
    if (!row) return;
    const { session, scene, base, index } = feed, facts = element("dl");
    const fact = (name, value, kind = "") => facts.append(element("dt", { text: name }), element("dd", { text: value, class: kind }));
    const told = (x) => `(${x.slice(0, SHOWN).map((each) => (each / scene.root).toFixed(4).replace("-", "−")).join(", ")}${x.length > SHOWN ? ", …" : ""})`;
    fact("position", count(row.position));
    fact("x", told(row.x));
    if (row.truth) fact("was at", told(row.truth));
    if (row.predicted !== undefined && row.predicted !== row.label) fact("was called", String(session.labels[row.predicted]), "wrong");
    place.replaceChildren(element("b", {}, markOf(row.label), String(session.labels[row.label])), facts);
    this.move(at, side);
    try {
      const answer = await get(`${base}/predict?x=${row.x.map((each) => each / scene.root).join(",")}`);
      if (mine !== this.asked) return;
      const scores = [answer.scores[0]].flat(), k = index.get(answer.predictions[0]);
      fact("now called", String(answer.predictions[0]), k === row.label ? "" : "wrong");
      fact(session.algorithm === "auto" ? "vote" : "score", scores[scores.length > 1 ? k : 0].toFixed(4).replace("-", "−"));
      const chances = (answer.probabilities?.[0] ?? []).map((each, j) => [each, j]).sort((a, b) => b[0] - a[0]);
      for (const [chance, j] of chances.slice(0, SHOWN)) fact(`P(${session.labels[j]})`, percent(chance));
      this.move(at, side);
    } catch (error) {
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
    }
  }

  /** Beside the point, towards the middle, within the square */
  move([x, y], side) {
    const { style, offsetHeight } = this.place, right = x > side / 2;
    style.setProperty("left", right ? "auto" : `${x + 16}px`);
    style.setProperty("right", right ? `${side - x + 16}px` : "auto");
    style.setProperty("top", `${Math.max(0, Math.min(y - 18, side - offsetHeight))}px`);
  }
}
