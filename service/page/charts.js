/* Small charts on Canvas 2D. A chart is a list of series over one axis of positions; labels stand at the lines' ends. */

import { count } from "./html.js";

const LEFT = 44, RIGHT = 12, TOP = 10, BOTTOM = 20;
const nice = (span, ticks) => {
  const raw = span / ticks, power = 10 ** Math.floor(Math.log10(raw)), unit = raw / power;
  return (unit < 1.5 ? 1 : unit < 3.5 ? 2 : unit < 7.5 ? 5 : 10) * power;
};
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  /** format: of the values, along: of the positions; log: a logarithmic axis; range: [low, high] or a function of the values */
  constructor(canvas, { format = count, along = count, log = false, range = null } = {}) {
    Object.assign(this, { canvas, context: canvas.getContext("2d"), format, along, log, range });
  }

  /** series: [{points: [[x, y]…], colour, width, dash, fill}], bands: [{points: [[x, low, high]…], colour}], marks: [x…] */
  draw({ series = [], bands = [], marks = [], from = null }) {
    const { canvas, context } = this, ratio = Math.min(devicePixelRatio || 1, 2);
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const xs = [...series, ...bands].flatMap((each) => each.points.map((x) => x[0]));
    if (!xs.length) return this.empty(width, height);
    const ys = [...series.flatMap((each) => each.points.map((x) => x[1])), ...(this.range ? [] : bands.flatMap((each) => each.points.flatMap((x) => x.slice(1))))];
    const left = from ?? Math.min(...xs), right = Math.max(...xs, left + 1);
    const [low, high] = this.bounds(ys);
    const scale = this.log ? (y) => Math.log(Math.max(y, low)) : (y) => y;
    const X = (x) => LEFT + ((x - left) / (right - left)) * (width - LEFT - RIGHT);
    const Y = (y) => height - BOTTOM - ((scale(y) - scale(low)) / (scale(high) - scale(low) || 1)) * (height - TOP - BOTTOM);

    context.font = `11px ${ink("--sans")}`;
    context.lineWidth = 1;
    for (const y of this.ticks(low, high)) {
      context.strokeStyle = ink("--hair");
      context.beginPath();
      context.moveTo(LEFT, Math.round(Y(y)) + 0.5);
      context.lineTo(width - RIGHT, Math.round(Y(y)) + 0.5);
      context.stroke();
      context.fillStyle = ink("--soft");
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(this.format(y), LEFT - 7, Y(y));
    }
    context.textBaseline = "alphabetic";
    context.fillStyle = ink("--soft");
    const step = nice(right - left, Math.max(2, width / 110));
    context.textAlign = "center";
    for (let x = Math.ceil(left / step) * step; x <= right; x += step) {
      context.fillText(this.along(x), Math.min(X(x), width - 16), height - 5);
    }
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT + 2, height - BOTTOM + 1);
    context.clip();
    for (const { points, colour } of bands) {
      context.fillStyle = colour;
      context.globalAlpha = 0.18;
      context.beginPath();
      points.forEach(([x, , top], i) => (i ? context.lineTo(X(x), Y(top)) : context.moveTo(X(x), Y(top))));
      [...points].reverse().forEach(([x, bottom]) => context.lineTo(X(x), Y(bottom)));
      context.fill();
      context.globalAlpha = 1;
    }
    for (const { points, colour, width: line = 1.75, dash = [] } of series) {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.setLineDash(dash);
      context.lineJoin = "round";
      context.beginPath();
      points.forEach(([x, y], i) => (i ? context.lineTo(X(x), Y(y)) : context.moveTo(X(x), Y(y))));
      context.stroke();
      context.setLineDash([]);
    }
    for (const x of marks) {
      context.fillStyle = context.strokeStyle = ink("--alert");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(X(x), TOP);
      context.lineTo(X(x), height - BOTTOM);
      context.stroke();
      context.beginPath();
      context.moveTo(X(x) - 5, TOP - 8);
      context.lineTo(X(x) + 5, TOP - 8);
      context.lineTo(X(x), TOP);
      context.fill();
    }
    context.restore();
    for (const { points, colour } of series) {
      const [x, y] = points[points.length - 1] ?? [];
      if (x === undefined) continue;
      context.fillStyle = colour;
      context.beginPath();
      context.arc(X(x), Y(y), 3, 0, 2 * Math.PI);
      context.fill();
    }
  }

  bounds(ys) {
    if (typeof this.range === "function") return this.range(ys);
    if (this.range) return this.range;
    const low = Math.min(...ys), high = Math.max(...ys);
    if (this.log) return [Math.max(1, low) / 1.2, Math.max(10, high) * 1.3];
    return [Math.min(0, low), high * 1.1 || 1];
  }

  ticks(low, high) {
    const found = [];
    if (this.log) {
      for (let y = 10 ** Math.ceil(Math.log10(low)); y <= high; y *= 10) found.push(y);
      if (found.length > 5) return found.filter((_, i) => i % 2 === 0);
      if (found.length > 1) return found;
      const powers = [0, 1, 2].map((i) => 10 ** (Math.floor(Math.log10(low)) + i));
      return powers.flatMap((power) => [1, 2, 5].map((each) => each * power)).filter((y) => y >= low && y <= high);
    }
    const step = nice(high - low, 3);
    for (let y = Math.ceil(low / step - 1e-9) * step || 0; y <= high + 1e-9; y += step) found.push(y);
    return found;
  }

  empty(width, height) {
    this.context.font = `12px ${ink("--sans")}`;
    this.context.fillStyle = ink("--soft");
    this.context.textAlign = "center";
    this.context.fillText("no points yet", width / 2, height / 2);
  }
}

/** A line without axes, y up to 1; of a single value its level, as a hair */
export function spark(canvas, values, colour) {
  const ratio = Math.min(devicePixelRatio || 1, 2), width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  if (!values.length) return;
  const low = Math.min(...values, 0.98) - 0.02, last = values.length - 1;
  const X = (i) => (last ? 2 + (i / last) * (width - 6) : width - 4), Y = (y) => height - 3 - ((y - low) / (1 - low)) * (height - 6);
  context.strokeStyle = context.fillStyle = last ? colour : ink("--hair");
  context.lineWidth = 1.5;
  context.lineJoin = "round";
  context.beginPath();
  context.moveTo(2, Y(values[0]));
  values.forEach((y, i) => context.lineTo(X(i), Y(y)));
  context.stroke();
  context.beginPath();
  context.arc(X(last), Y(values[last]), 2.5, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
}
