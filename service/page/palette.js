/* Colours and shapes of the classes, the same as service/sessions/palette.py has for disk.svg (a test compares them):
   20 colours, chosen apart for normal and for colour-blind eyes, and nine shapes, so that no two of 180 classes share
   both. From the 21st class on a region is striped. */

export const LIGHT = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a7d00", "#555555", "#350d8f", "#a9d7b4", "#4e2900", "#4605eb", "#9672fd", "#7cd8fc", "#fac75c", "#9b3205", "#41374b", "#bd1485", "#a0b487", "#591db6"];
export const DARK = ["#f0803a", "#4fb0ea", "#2bc49a", "#e09cc2", "#f2b63c", "#9ad6f8", "#f0e442", "#c9c9c9", "#3966f5", "#8e6688", "#c05101", "#e9f2b4", "#8578c8", "#a2fbfe", "#a3837a", "#7e87ff", "#b6fd27", "#f315b6", "#1c8444", "#0ee787"];

const PLUS = [[-3, -1], [-1, -1], [-1, -3], [1, -3], [1, -1], [3, -1], [3, 1], [1, 1], [1, 3], [-1, 3], [-1, 1], [-3, 1]];
/** Corners in units of a mark's radius, y downwards, of about equal area; none: a circle */
export const SHAPES = [
  [[0, -1.35], [1.2, 0.75], [-1.2, 0.75]],
  [],
  [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  [[0, -1.4], [1.15, 0], [0, 1.4], [-1.15, 0]],
  PLUS.map((corner) => corner.map((each) => 0.45 * each)),
  [[0, 1.35], [-1.2, -0.75], [1.2, -0.75]],
  [[-1.15, -1.15], [1.15, -1.15], [-1.15, 1.15], [1.15, 1.15]],
  [[-1.45, -0.6], [1.45, -0.6], [1.45, 0.6], [-1.45, 0.6]],
  [[0, -1.6], [0.5, -0.5], [1.6, 0], [0.5, 0.5], [0, 1.6], [-0.5, 0.5], [-1.6, 0], [-0.5, -0.5]],
];

const dark = matchMedia("(prefers-color-scheme: dark)");
export const isDark = () => dark.matches;
export const onScheme = (call) => dark.addEventListener("change", call);

export const colour = (k) => (isDark() ? DARK : LIGHT)[k % LIGHT.length];
export const shape = (k) => SHAPES[(k + 2 * Math.floor(k / LIGHT.length)) % SHAPES.length];
export const striped = (k) => Math.floor(k / LIGHT.length) % 2 === 1;

/** The outline of a mark on a canvas */
export function trace(context, k, x, y, size) {
  const corners = shape(k);
  context.beginPath();
  if (!corners.length) context.arc(x, y, size, 0, 2 * Math.PI);
  else {
    corners.forEach(([a, b], i) => (i ? context.lineTo(x + size * a, y + size * b) : context.moveTo(x + size * a, y + size * b)));
    context.closePath();
  }
}

/** A mark as an inline picture, for legends */
export function markOf(k, size = 14) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "-9 -9 18 18");
  svg.setAttribute("width", size);
  svg.setAttribute("height", size);
  svg.setAttribute("aria-hidden", "true");
  const corners = shape(k), outline = document.createElementNS(svg.namespaceURI, corners.length ? "polygon" : "circle");
  if (corners.length) outline.setAttribute("points", corners.map(([x, y]) => `${5.4 * x},${5.4 * y}`).join(" "));
  else outline.setAttribute("r", 5.4);
  outline.setAttribute("fill", colour(k));
  svg.append(outline);
  return svg;
}
