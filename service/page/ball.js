/* The unit disk. A session's point x of curvature −c is √c·x here; a point is [x, y].

   Every boundary but the strategic one is a generalised circle, and is kept as a form q = [A, b₁, b₂, C]:
       {x : A‖x‖² + 2⟨b,x⟩ + C = 0}
   which isometries take to another form, exactly. */

export const dot = (x, y) => x.reduce((sum, each, i) => sum + each * y[i], 0);
export const norm = (x) => Math.sqrt(dot(x, x));
export const scaled = (x, factor) => x.map((each) => each * factor);
export const sigma = (p) => 2 / (1 - dot(p, p));

/** x ⊕ y = (‖s‖² x + (1−‖x‖²) s) / (‖s‖² + (1−‖x‖²)(1−‖y‖²)),  s = x + y; in any dimension */
export function add(x, y) {
  const s = x.map((each, i) => each + y[i]);
  const ss = dot(s, s), xx = 1 - dot(x, x), below = ss + xx * (1 - dot(y, y));
  return x.map((each, i) => (ss * each + xx * s[i]) / below);
}

/** d(x, y) = 2 asinh(‖x−y‖ / √((1−‖x‖²)(1−‖y‖²))) */
export function distance(x, y) {
  const s = x.map((each, i) => each - y[i]);
  return 2 * Math.asinh(Math.sqrt(dot(s, s) / ((1 - dot(x, x)) * (1 - dot(y, y)))));
}

/** z = 2u/(1−‖u‖²), u = (−p)⊕x: the spatial part of x on the hyperboloid once p is the origin */
export function lift(p, x) {
  const s = x.map((each, i) => each - p[i]);
  const ss = dot(s, s) / (1 - dot(p, p)), below = (1 - dot(x, x)) / 2;
  return s.map((each, i) => (each - ss * p[i]) / below);
}

/** σ_p log_p(x): the arrow at p towards x, as long as the way is */
export function arrow(p, x) {
  const r = distance(p, x);
  return scaled(lift(p, x), r > 0 ? r / Math.sinh(r) : 1);
}

/** The end of an arrow at p: p ⊕ tanh(‖v‖/2) v/‖v‖ */
export function end(p, v) {
  const length = norm(v);
  return length > 0 ? add(p, scaled(v, Math.tanh(length / 2) / length)) : p.slice();
}

/** The form of {x : [N,h] = 0}, N = (N₀, N_s): 2⟨N_s,x⟩ = N₀(1+‖x‖²) */
export const plane = (N) => [-N[0], N[1], N[2], -N[0]];

/** N = (σ_p⟨w,p⟩, w + σ_p⟨w,p⟩ p): the geodesic through p, orthogonal to w; [N,N] = ‖w‖² */
export function normal(w, p) {
  const time = sigma(p) * dot(w, p);
  return [time, ...w.map((each, i) => each + time * p[i])];
}

/** The form of {x : ⟨w,φ⟩ = 0}, φ = (1, 2x, 1−‖x‖²)/(1+‖x‖²) after the first one */
export const sphere = (w) => [w[0] - w[3], w[1], w[2], w[0] + w[3]];

export const value = (q, x, y) => q[0] * (x * x + y * y) + 2 * (q[1] * x + q[2] * y) + q[3];

/** The form on the screen, where a is in the middle: y = (−a)⊕x */
export function moved(q, a) {
  const [A, b, d, C] = q, [s, t] = a, aa = s * s + t * t;
  const along = 2 * (b * s + d * t), re = s * s - t * t, im = 2 * s * t; // a² = re + i·im
  return [
    A + along + C * aa,
    (A + C) * s + b + b * re + d * im, // b̄a² = (b − i·d)(re + i·im)
    (A + C) * t + d + b * im - d * re,
    A * aa + along + C,
  ];
}

/** What a form draws: a circle with centre and radius, a line, or nothing. And what it is in this geometry:
    n = ((A+C)/2, b) is its normal and (A−C)/2 how far it is off the geodesic of that normal. */
export function curve(q) {
  const [A, b, d, C] = q, bb = b * b + d * d, size = Math.max(Math.abs(A), Math.sqrt(bb), Math.abs(C));
  if (!(size > 0)) return null;
  const time = (A + C) / 2, off = (A - C) / 2, spacelike = bb - time * time;
  const flat = 1e-12 * size * size;
  let name = Math.abs(spacelike) <= flat ? "horocycle" : spacelike < 0 ? "circle" : "hypercycle";
  if (name === "hypercycle" && Math.abs(off) <= 1e-9 * Math.sqrt(spacelike)) name = "geodesic";
  if (name === "circle" && off * off <= -spacelike) return null; // it does not meet the disk
  if (name === "circle" && Math.sign(off) !== Math.sign(time)) return null; // nor does this one: it is the antipodal sheet's
  if (Math.abs(A) <= 1e-9 * size) return { name, shape: "line", normal: [b, d], offset: C / 2 };
  const centre = [-b / A, -d / A], square = bb / (A * A) - C / A;
  return square > 0 ? { name, shape: "circle", centre, radius: Math.sqrt(square) } : null;
}

/** The view that has the point of the disk under u under v instead: X = a⊕u, and a′ with (−a′)⊕X = v.
    With complex numbers a′ = (m + k m̄)/(1−|k|²), m = X − v, k = vX. Nothing ever turns. */
export function panned(a, u, v) {
  const [x, y] = add(a, u), m = [x - v[0], y - v[1]];
  const k = [v[0] * x - v[1] * y, v[0] * y + v[1] * x], below = 1 - dot(k, k);
  const found = [(m[0] + k[0] * m[0] + k[1] * m[1]) / below, (m[1] + k[1] * m[0] - k[0] * m[1]) / below];
  return norm(found) < 0.9999 ? found : a;
}

/** Points of the geodesic from x to y, ends included */
export function segment(x, y, steps = 8) {
  const v = arrow(x, y);
  return Array.from({ length: steps + 1 }, (_, i) => (i < steps ? end(x, scaled(v, i / steps)) : y));
}
