/* The regular tiling {7,3}, heptagons three to a corner, as a faint ground: it moves under a pan as everything does.

   Isometries are z ↦ (αz+β)/(β̄z+ᾱ), kept as [α₁, α₂, β₁, β₂]. A half turn about the middle of a side takes the tiling to
   itself, so the patch around the tile that is in view is drawn, however far one goes. */

const SIDES = 7, MEET = 3, REACH = 0.985;

const middle = Math.acosh(Math.cos(Math.PI / MEET) / Math.sin(Math.PI / SIDES)); // from a tile's centre to a side
const corner = Math.acosh(1 / (Math.tan(Math.PI / SIDES) * Math.tan(Math.PI / MEET)));
const polar = (r, angle) => [Math.tanh(r / 2) * Math.cos(angle), Math.tanh(r / 2) * Math.sin(angle)];
const SIDE = Array.from({ length: SIDES }, (_, i) => polar(middle, (2 * Math.PI * i) / SIDES));
const CORNER = Array.from({ length: SIDES }, (_, i) => polar(corner, (2 * Math.PI * (i + 0.5)) / SIDES));

const times = ([a, b, c, d], [e, f, g, h]) => [
  a * e - b * f + c * g + d * h, // αα′ + ββ̄′
  a * f + b * e - c * h + d * g,
  a * g - b * h + c * e + d * f, // αβ′ + βᾱ′
  a * h + b * g - c * f + d * e,
];

export function apply([a, b, c, d], [x, y]) {
  const top = [a * x - b * y + c, a * y + b * x + d], low = [c * x + d * y + a, c * y - d * x - b];
  const size = low[0] * low[0] + low[1] * low[1];
  return [(top[0] * low[0] + top[1] * low[1]) / size, (top[1] * low[0] - top[0] * low[1]) / size];
}

/** The half turn about m, z ↦ τ(−τ⁻¹(z)): α = i(1+|m|²), β = −2im, over 1−|m|² */
function halfTurn([x, y]) {
  const mm = x * x + y * y;
  return [0, (1 + mm) / (1 - mm), (2 * y) / (1 - mm), (-2 * x) / (1 - mm)];
}
const TURNS = SIDE.map(halfTurn);

/** The sides within reach of the origin, each once, as pairs of points */
const patch = (() => {
  const seen = new Map(), sides = new Map(), open = [[1, 0, 0, 0]];
  const name = ([x, y]) => `${Math.round(x * 1e4)} ${Math.round(y * 1e4)}`;
  while (open.length) {
    const g = open.shift(), at = apply(g, [0, 0]);
    if (Math.hypot(...at) > REACH || seen.has(name(at))) continue;
    seen.set(name(at), g);
    SIDE.forEach((m, i) => sides.set(name(apply(g, m)), [apply(g, CORNER[(i + SIDES - 1) % SIDES]), apply(g, CORNER[i])]));
    TURNS.forEach((turn) => open.push(times(g, turn)));
  }
  return [...sides.values()];
})();

/** The sides around a, on the screen that has a in its middle */
export function tiling(a) {
  const size = Math.sqrt(1 - a[0] * a[0] - a[1] * a[1]);
  let view = [1 / size, 0, -a[0] / size, -a[1] / size];
  for (let nearest = Math.hypot(...apply(view, [0, 0])); ; ) {
    const next = TURNS.map((turn) => times(view, turn)).map((g) => [Math.hypot(...apply(g, [0, 0])), g]);
    const best = next.reduce((x, y) => (y[0] < x[0] ? y : x));
    if (best[0] >= nearest - 1e-9) break;
    [nearest, view] = best;
  }
  return patch.map((side) => side.map((x) => apply(view, x)));
}
