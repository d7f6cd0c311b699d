/* A fit drawn over the disk. It answers `predict?model=…`; its boundary is found from that: sinh of a signed distance is
   linear in h = (1+‖x‖², 2x)/(1−‖x‖²), a softmax's score in (h, 1). Four numbers say it all. */

import { post } from "./api.js";
import { distance } from "./ball.js";

/** The form of a fit's boundary, for two labels in the plane; the positions of its support vectors among the points */
export async function overlay(base, fit, session, rows) {
  const root = Math.sqrt(session.curvature), unit = probes();
  const asked = [...unit.map((x) => x.map((each) => each / root)), ...rows.map((row) => row.x.map((each) => each / root))];
  const { scores } = await post(`${base}/predict?model=${encodeURIComponent(fit.id)}`, { points: asked });
  const raw = fit.kind === "softmax" || ["hyperboloid", "hemisphere"].includes(fit.features);
  const form = fitted(unit, scores.slice(0, unit.length).map((s) => (raw ? s : Math.sinh(root * s))));
  return { form, support: support(fit, session, rows, scores.slice(unit.length), root) };
}

/** Points of the disk that four functions can be told apart on */
const probes = () => Array.from({ length: 24 }, (_, i) => [0.15 + 0.03 * (i % 12), i * 2.4].map((each, j, polar) => polar[0] * (j ? Math.sin : Math.cos)(polar[1])));

/** Least squares: value = n₀h₀ + ⟨n,h_s⟩ + m, times 1−‖x‖² a form */
function fitted(points, values) {
  const F = points.map(([x, y]) => {
    const below = 1 - x * x - y * y;
    return [(2 - below) / below, (2 * x) / below, (2 * y) / below, 1];
  });
  const A = [0, 1, 2, 3].map((i) => [...[0, 1, 2, 3].map((j) => F.reduce((sum, f) => sum + f[i] * f[j], 0)), F.reduce((sum, f, n) => sum + f[i] * values[n], 0)]);
  for (let i = 0; i < 4; i++) {
    const best = [...A.keys()].slice(i).reduce((x, y) => (Math.abs(A[y][i]) > Math.abs(A[x][i]) ? y : x));
    [A[i], A[best]] = [A[best], A[i]];
    for (let j = 0; j < 4; j++) if (j !== i) A[j] = A[j].map((each, k) => each - (A[j][i] / A[i][i]) * A[i][k]);
  }
  const [time, x, y, off] = A.map((row, i) => row[4] / row[i]);
  return [time - off, x, y, time + off];
}

/** Those n points with the smallest y·⟨w,f⟩, n being how many support vectors the fit has: all others are beyond its margin */
function support(fit, session, rows, scores, root) {
  if (!fit.support_vectors || fit.support_vectors.length !== 1) return new Set();
  const p = fit.references?.[0]?.map((each) => each * root);
  const margins = rows.map((row, i) => {
    let f = fit.features === "hyperboloid" || fit.features === "hemisphere" ? scores[i] : Math.sinh(root * scores[i]);
    if (fit.features === "tangent") {
      const r = distance(p, row.x);
      f *= r > 0 ? r / Math.sinh(r) : 1;
    }
    return [row.label === 1 ? f : -f, row.position];
  });
  margins.sort((x, y) => x[0] - y[0]);
  return new Set(margins.slice(0, fit.support_vectors[0]).map((each) => each[1]));
}
