/* A published model (GET …/model) as a classifier of the disk that is drawn.

   frame.js says which disk that is: the session's own (d = 2), one around its diameter (d = 1), or a plane through many
   dimensions. Each model gives there
     decider(a)   the class of a point of the screen that has a in its middle, for regions
     forms        generalised circles whose values the classes are decided by, where there are such
     threshold    the strategic threshold, as a polyline
   Scores are compared, never shown: what a score is, the service says. */

import { add, arrow, dot, end, moved, norm, normal, plane, scaled, sigma, sphere, value } from "./ball.js";

const NEAR = 1e-9; // as service/learners/strategic.py: this near to the threshold is on it

export function classifier(model, frame) {
  const root = Math.sqrt(model.curvature);
  if (model.members) return vote(model, frame);
  if (model.classes && !model.weights) return gaussian(model, frame);
  const W = rows(model.weights);
  if (!W.some((w) => w.some((each) => each !== 0))) return { kind: "cold", forms: [], decider: null };
  const P = model.reference ? rows(model.reference).map((p) => scaled(p, root)) : [];
  const features = model.features ?? (model.threshold != null ? "tangent" : P.length ? "lift" : "hyperboloid");
  if (features === "tangent") return strategic(model, frame, P[0], W[0], root);
  const forms = W.map((w, k) => form(features, w, P[k] ?? P[0], frame));
  if (forms.length === 1) return { kind: "one", forms, decider: (a) => sides(moved(forms[0], a)) };
  const scales = W.map((w) => scale(features, w));
  const own = forms.map((q, k) => scaled(q, scales[k]));
  return { kind: "many", forms, decider: (a) => largest(own.map((q) => moved(q, a))) };
}

const rows = (x) => (Array.isArray(x[0]) ? x : [x]);

function form(features, w, p, frame) {
  if (features === "hemisphere") return sphere([w[0], ...frame.across(w.slice(1, -1)), w[w.length - 1]]);
  if (features === "hyperboloid") return plane([w[0], ...frame.across(w.slice(1))]);
  if (frame.centred) return plane([0, ...frame.across(w)]); // p is in the middle
  const N = normal(w, p);
  return plane([N[0], ...frame.across(N.slice(1))]);
}

/** Of K classes the largest score decides: ⟨w,φ⟩ on the hemisphere, a signed distance elsewhere, which divides by √[N,N] */
function scale(features, w) {
  if (features === "hemisphere") return 1;
  const ww = dot(w, w), square = features === "hyperboloid" ? ww - 2 * w[0] * w[0] : ww;
  return square > 0 ? 1 / Math.sqrt(square) : ww > 0 ? 1 / Math.sqrt(ww) : 0;
}

const sides = (q) => (x, y) => (value(q, x, y) >= 0 ? 1 : 0);

function largest(forms) {
  return (x, y) => {
    let best = 0, top = -Infinity;
    for (let k = 0; k < forms.length; k++) {
      const found = value(forms[k], x, y);
      if (found > top) [best, top] = [k, found];
    }
    return best;
  };
}

/** Positive iff σ_p⟨w,v⟩/‖w‖ ≥ α: a straight line in the tangent space at p, no geodesic in the disk */
function strategic(model, frame, p, w, root) {
  const flat = frame.across(w), length = norm(flat);
  if (!(length > 1e-9 * norm(w))) return { kind: "strategic", forms: [], decider: null, threshold: null };
  const alpha = (model.threshold * root * sigma(p) * norm(w)) / length;
  const at = frame.centred ? [0, 0] : frame.flat(p), n = scaled(flat, 1 / length), turned = [-n[1], n[0]];
  const threshold = Array.from({ length: 257 }, (_, i) => {
    const far = Math.tan((Math.PI * (i - 128)) / 256.0001); // even steps of the angle: visible near p and near the rim
    return end(at, [alpha * n[0] + far * turned[0], alpha * n[1] + far * turned[1]]);
  });
  const decider = (a) => (x, y) => {
    const v = arrow(at, add(a, [x, y]));
    return dot(v, n) - alpha >= -NEAR * Math.max(alpha, norm(v)) ? 1 : 0;
  };
  return { kind: "strategic", forms: [plane(normal(n, at))], decider, threshold, alpha, at, n };
}

/** argmax of log n_k + log N(v; m_k, Σ_k), v the arrow at the origin: a quadratic function of v's two coordinates here */
function gaussian(model, frame) {
  const seen = model.classes.map((each, k) => ({ ...each, k })).filter((each) => each.count > 0);
  if (!seen.length) return { kind: "cold", forms: [], decider: null };
  const parts = seen.map((each) => {
    const { log, solve } = each.covariance ? factored(each.covariance) : diagonal(each.variances);
    const columns = frame.axes(each.mean.length), S = columns.map(solve), m = solve(each.mean);
    return {
      k: each.k,
      P: [dot(columns[0], S[0]), dot(columns[0], S[1]), dot(columns[1], S[1]) + (frame.line ? 1 : 0)],
      b: columns.map((e) => dot(e, m)),
      c: Math.log(each.count) - log - dot(each.mean, m) / 2,
    };
  });
  const decider = ([s, t]) => (x, y) => {
    const A = 1 + s * x + t * y, B = s * y - t * x, below = A * A + B * B; // (z + a)/(1 + āz)
    const re = ((x + s) * A + (y + t) * B) / below, im = ((y + t) * A - (x + s) * B) / below;
    const r = Math.sqrt(re * re + im * im), stretch = r > 0 ? (2 * Math.atanh(Math.min(r, 1 - 1e-15))) / r : 2;
    const v = stretch * re, u = stretch * im;
    let best = 0, top = -Infinity;
    for (const { k, P, b, c } of parts) {
      const found = c + b[0] * v + b[1] * u - (P[0] * v * v + 2 * P[1] * v * u + P[2] * u * u) / 2;
      if (found > top) [best, top] = [k, found];
    }
    return best;
  };
  return { kind: "many", forms: [], decider };
}

/** Σ = LLᵀ: half its log determinant, and Σ⁻¹x */
function factored(S) {
  const n = S.length, L = S.map((row) => row.slice());
  let log = 0;
  for (let j = 0; j < n; j++) {
    for (let i = j; i < n; i++) {
      let sum = S[i][j];
      for (let k = 0; k < j; k++) sum -= L[i][k] * L[j][k];
      L[i][j] = i === j ? Math.sqrt(sum) : sum / L[j][j];
    }
    log += Math.log(L[j][j]);
  }
  const solve = (x) => {
    const y = x.slice();
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < i; k++) y[i] -= L[i][k] * y[k];
      y[i] /= L[i][i];
    }
    for (let i = n - 1; i >= 0; i--) {
      for (let k = i + 1; k < n; k++) y[i] -= L[k][i] * y[k];
      y[i] /= L[i][i];
    }
    return y;
  };
  return { log, solve };
}

const diagonal = (variances) => ({
  log: variances.reduce((sum, each) => sum + Math.log(each) / 2, 0),
  solve: (x) => x.map((each, i) => each / variances[i]),
});

/** The plurality of the members' weights; ties go to the heaviest. One that has learned nothing yet says what a score of 0 says */
function vote(model, frame) {
  const K = model.labels.length, first = () => () => (K === 2 ? 1 : 0);
  const found = model.members.map((each) => ({ weight: each.weight, algorithm: each.algorithm, ...classifier(each, frame) }));
  if (!found.some((each) => each.decider)) return { kind: "cold", forms: [], decider: null };
  const members = found.map((each) => ({ ...each, decider: each.decider ?? first }));
  const ruler = members.find((each) => each.weight > 0.5); // what it says is what is said
  if (ruler) return { ...ruler, kind: ruler.kind === "cold" ? "many" : ruler.kind, ruler: ruler.algorithm };
  const decider = (a) => {
    const deciders = members.map((each) => each.decider(a)), shares = new Float64Array(K);
    return (x, y) => {
      shares.fill(0);
      let best = -1, heaviest = -1;
      const said = deciders.map((decide) => decide(x, y));
      said.forEach((k, m) => (shares[k] += members[m].weight));
      const top = Math.max(...shares);
      said.forEach((k, m) => {
        if (shares[k] >= top - 1e-12 && members[m].weight > heaviest) [best, heaviest] = [k, members[m].weight];
      });
      return best;
    };
  };
  return { kind: "many", forms: [], decider };
}

/** Those at a distance ε from a geodesic, on both sides: its value is sinh ε · √[N,N] · (1−‖x‖²) there */
export function band(q, margin) {
  const time = (q[0] + q[3]) / 2, s = Math.sinh(margin) * Math.sqrt(Math.max(q[1] * q[1] + q[2] * q[2] - time * time, 0));
  return [1, -1].map((side) => [q[0] + side * s, q[1], q[2], q[3] - side * s]);
}

