/* Which disk is drawn. Two dimensions: the session's own. One: around its diameter. More: the plane of the two principal
   directions of log_q(x) about q, the reference point or the origin; what is off that plane is lost, and said to be. */

import { add, arrow, dot, end, norm, scaled } from "./ball.js";

const SAMPLE = 512, ROUNDS = 24;

/** points: in the unit ball. q: the reference point there, if there is exactly one */
export function frameOf(d, points, q) {
  if (d === 2) return plain;
  if (d === 1) return diameter;
  return projection(d, points, q);
}

const plain = {
  kind: "plane",
  across: (w) => w,
  flat: (x) => x,
  axes: () => [[1, 0], [0, 1]],
};

/** Each class stands a little off the line, at a constant distance */
const diameter = {
  kind: "line",
  line: true,
  across: (w) => [w[0], 0],
  flat: (x, k) => (k === undefined ? [x[0], 0] : add([x[0], 0], [0, Math.tanh(0.08 * (1 + (k >> 1))) * (k % 2 ? 1 : -1)])),
  axes: () => [[1], [0]],
  note: "One dimension: the horizontal diameter. The classes stand a little off it.",
};

function projection(d, points, q) {
  const at = q ?? new Array(d).fill(0);
  const step = Math.max(1, Math.floor(points.length / SAMPLE));
  const V = points.filter((_, i) => i % step === 0).map((x) => arrow(at, x));
  const E = principal(V, d);
  const total = V.reduce((sum, v) => sum + dot(v, v), 0);
  const kept = V.reduce((sum, v) => sum + dot(v, E[0]) ** 2 + dot(v, E[1]) ** 2, 0);
  const share = total > 0 ? Math.round((100 * kept) / total) : 100;
  return {
    kind: "projection",
    centred: q != null,
    across: (w) => E.map((e) => dot(e, w)),
    flat: (x) => {
      const v = arrow(at, x);
      return end([0, 0], [dot(v, E[0]), dot(v, E[1])]);
    },
    axes: () => E,
    basis: E,
    note:
      `A projection of ${d.toLocaleString("en")} dimensions on the two principal directions about ` +
      `${q ? "the reference point" : "the origin"}, which keep ${share} % of the spread. ` +
      "Points off that plane may be on the other side of what is drawn.",
  };
}

/** The two directions that keep most of Σ⟨e,v⟩², by orthogonal iteration from a fixed start */
function principal(V, d) {
  let E = [0, 1].map((row) => Array.from({ length: d }, (_, i) => Math.cos(1 + i * (1.7 + row) + row)));
  for (let round = 0; round < ROUNDS; round++) {
    const next = E.map(() => new Array(d).fill(0));
    for (const v of V) {
      E.forEach((e, row) => {
        const along = dot(e, v);
        for (let i = 0; i < d; i++) next[row][i] += along * v[i];
      });
    }
    E = orthonormal(next, E);
  }
  return E.map((e) => {
    const largest = e.reduce((best, each, i) => (Math.abs(each) > Math.abs(e[best]) ? i : best), 0);
    return e[largest] < 0 ? scaled(e, -1) : e;
  });
}

function orthonormal([x, y], before) {
  const first = norm(x) > 0 ? scaled(x, 1 / norm(x)) : before[0].map((each) => each / norm(before[0]));
  const along = dot(first, y), rest = y.map((each, i) => each - along * first[i]);
  if (norm(rest) > 1e-12 * (norm(y) || 1)) return [first, scaled(rest, 1 / norm(rest))];
  const axis = first.reduce((best, each, i) => (Math.abs(each) < Math.abs(first[best]) ? i : best), 0);
  const any = first.map((each, i) => (i === axis ? 1 : 0) - first[axis] * each);
  return [first, scaled(any, 1 / norm(any))];
}
