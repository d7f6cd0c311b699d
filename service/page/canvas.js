/* Paints a scene on canvases that lie on each other: the ground with its regions, the points, the lines. */

import { curve, segment } from "./ball.js";
import { colour, isDark, trace } from "./palette.js";
import { follow, outline, whole } from "./paths.js";
import { Regions } from "./regions.js";
import { tiling } from "./tiling.js";

const AGES = [0.3, 0.45, 0.65, 0.95]; // opacity, oldest first
const FADING = 200; // points, from which on older ones are paler
const FLASH = 900; // milliseconds
const ARROWS = 60; // the newest moves are drawn

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Painter {
  /** host: an element with three canvases; small: a thumbnail, without rulers and flashes */
  constructor(host, { small = false } = {}) {
    this.layers = ["ground", "marks", "lines"].map((name) => {
      const canvas = document.createElement("canvas");
      canvas.className = name;
      host.append(canvas);
      return canvas.getContext("2d");
    });
    this.host = host;
    this.small = small;
    this.sprites = new Map();
    this.flashes = [];
    this.regions = new Regions();
    this.tileset = document.createElement("canvas");
    this.resize();
  }

  resize() {
    const ratio = Math.min(devicePixelRatio || 1, 2), side = Math.max(40, Math.round(this.host.clientWidth));
    this.side = side;
    this.ratio = ratio;
    this.radius = side / 2 - (this.small ? 1.5 : 10);
    for (const { canvas } of this.layers) {
      canvas.width = canvas.height = Math.round(side * ratio);
    }
    this.sprites.clear();
    this.tiled = null;
  }

  recolour() {
    this.sprites.clear();
    this.tiled = null;
    const style = getComputedStyle(document.documentElement);
    this.ink = style.getPropertyValue("--ink").trim();
    this.paper = style.getPropertyValue("--disk").trim();
  }

  at([x, y]) {
    return [this.side / 2 + this.radius * x, this.side / 2 - this.radius * y];
  }

  /** The point of the disk under a position of the host; null outside */
  under(px, py, most = 0.995) {
    const x = (px - this.side / 2) / this.radius, y = (this.side / 2 - py) / this.radius;
    return Math.hypot(x, y) < most ? [x, y] : null;
  }

  begin(layer) {
    const context = this.layers[layer];
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, this.side, this.side);
    if (!this.ink) this.recolour();
    return context;
  }

  rim(context) {
    context.beginPath();
    context.arc(this.side / 2, this.side / 2, this.radius, 0, 2 * Math.PI);
  }

  /** Disk, tiling, tints. `resting`: as fine as the screen */
  ground(drawn, resting) {
    const context = this.begin(0);
    context.save();
    this.rim(context);
    context.fillStyle = this.paper;
    context.fill();
    context.clip();
    if (drawn.boundary || (drawn.form && drawn.kind === "one")) this.halves(context, drawn.form);
    else if (drawn.classAt) this.regions.draw(context, drawn.classAt, this, resting);
    if (drawn.threshold && drawn.geodesic) this.hatched(context, drawn);
    if (!this.small) this.tiles(context, drawn.view);
    context.restore();
  }

  /** The tiling, drawn anew when the view has changed */
  tiles(target, view) {
    if (this.tiled !== view) this.retile(view);
    target.drawImage(this.tileset, 0, 0, this.side, this.side);
  }

  retile(view) {
    this.tiled = view;
    this.tileset.width = this.tileset.height = Math.round(this.side * this.ratio);
    const context = this.tileset.getContext("2d");
    context.scale(this.ratio, this.ratio);
    context.strokeStyle = this.ink;
    context.globalAlpha = isDark() ? 0.1 : 0.075;
    context.lineWidth = 1;
    context.beginPath();
    for (const [x, y] of tiling(view)) {
      const reach = Math.hypot(x[0] - y[0], x[1] - y[1]);
      if (reach * this.radius < 1.5) continue;
      segment(x, y, reach > 0.12 ? 6 : 2).forEach((each, i) => (i ? context.lineTo(...this.at(each)) : context.moveTo(...this.at(each))));
    }
    context.stroke();
  }

  /** Two classes: each side of a circle or line in its tint */
  halves(context, q) {
    const all = new Path2D();
    all.rect(0, 0, this.side, this.side);
    const found = curve(q), side = new Path2D();
    context.globalAlpha = isDark() ? 0.2 : 0.13;
    if (!found) {
      context.fillStyle = colour(q[3] >= 0 ? 1 : 0);
      context.fill(all);
    } else {
      outline(side, found, this);
      const inside = found.shape === "circle" ? (q[0] < 0 ? 1 : 0) : 1; // the class within; of a line, where ⟨b,x⟩ > 0
      context.fillStyle = colour(inside);
      context.fill(side);
      all.addPath(side);
      context.fillStyle = colour(1 - inside);
      context.fill(all, "evenodd");
    }
    context.globalAlpha = 1;
  }

  /** Between the geodesic through p and the threshold: no rational agent is seen there */
  hatched(context, drawn) {
    const between = new Path2D();
    drawn.threshold.forEach((x, i) => (i ? between.lineTo(...this.at(x)) : between.moveTo(...this.at(x))));
    const first = drawn.threshold[0], last = drawn.threshold[drawn.threshold.length - 1];
    follow(between, drawn.geodesic, last, first, this);
    between.closePath();
    context.save();
    context.clip(between);
    context.strokeStyle = this.ink;
    context.globalAlpha = 0.22;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = -this.side; x < this.side; x += 6) {
      context.moveTo(x, this.side);
      context.lineTo(x + this.side, 0);
    }
    context.stroke();
    context.restore();
  }

  sprite(k, size) {
    const name = k * 64 + Math.round(size * 4);
    let found = this.sprites.get(name);
    if (!found) {
      const half = Math.ceil(size * 1.7) + 1;
      found = document.createElement("canvas");
      found.width = found.height = 2 * half * this.ratio;
      const context = found.getContext("2d");
      context.scale(this.ratio, this.ratio);
      trace(context, k, half, half, size);
      context.fillStyle = colour(k);
      context.fill();
      context.strokeStyle = this.paper;
      context.lineWidth = 0.6;
      context.stroke();
      found.half = half;
      this.sprites.set(name, found);
    }
    return found;
  }

  /** The points, the newest on top; smaller towards the rim, as everything is in the disk. `fresh`: only those that were
      not painted yet */
  marks(drawn, fresh = false) {
    const n = drawn.points.length, last = fresh ? drawn.points.lastIndexOf(this.newest) : -1;
    const context = last < 0 ? this.begin(1) : this.layers[1];
    this.newest = drawn.points[n - 1];
    const largest = this.small ? Math.min(3.2, Math.max(1.8, 3 * (120 / Math.max(n, 1)) ** 0.25)) : Math.min(7, Math.max(3.2, 6 * (250 / Math.max(n, 1)) ** 0.22));
    const slices = Math.min(AGES.length, 1 + Math.floor(n / FADING));
    for (let i = last + 1; i < n; i++) {
      const { x, y, row } = drawn.points[i];
      const size = Math.round(4 * largest * (0.38 + 0.62 * (1 - x * x - y * y))) / 4;
      const mark = this.sprite(row.label, Math.max(size, 0.75)), [px, py] = this.at([x, y]);
      context.globalAlpha = AGES[AGES.length - slices + Math.floor((slices * i) / n)];
      const pixel = (at) => Math.round((at - mark.half) * this.ratio) / this.ratio; // a copy of pixels is soon made
      context.drawImage(mark, pixel(px), pixel(py), 2 * mark.half, 2 * mark.half);
    }
    context.globalAlpha = 1;
  }

  /** Boundary, bands, arrows, reference point, rim, flashes; true while a flash goes on */
  lines(drawn, hovered, now) {
    const context = this.begin(2);
    context.save();
    this.rim(context);
    context.clip();
    context.strokeStyle = this.ink;
    for (const q of drawn.bands) this.stroke(context, curve(q), 1, [2, 4], 0.6);
    if (drawn.geodesic) this.stroke(context, drawn.geodesic, 1.5, [1, 5]);
    if (drawn.boundary) this.stroke(context, drawn.boundary, this.small ? 1.5 : 2.5);
    if (drawn.threshold) this.poly(context, drawn.threshold, this.small ? 1.5 : 2.5);
    if (drawn.fit?.curve) this.stroke(context, drawn.fit.curve, 2, [9, 5]);
    if (!this.small) this.arrows(context, drawn.points);
    const burning = this.flash(context, drawn, now);
    this.support(context, drawn);
    context.restore();
    context.strokeStyle = this.ink;
    context.lineWidth = this.small ? 1 : 1.5;
    this.rim(context);
    context.stroke();
    if (!this.small) for (const p of drawn.references) this.reference(context, p);
    if (hovered) this.ring(context, hovered, 11, 2);
    return burning;
  }

  stroke(context, found, width, dash = [], alpha = 1) {
    if (!found) return;
    const path = new Path2D();
    whole(path, found, this);
    context.globalAlpha = alpha;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.stroke(path);
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  poly(context, points, width) {
    context.lineWidth = width;
    context.beginPath();
    points.forEach((x, i) => (i ? context.lineTo(...this.at(x)) : context.moveTo(...this.at(x))));
    context.stroke();
  }

  /** From where agents were to where they were seen */
  arrows(context, points) {
    const moves = points.filter(({ from, x, y }) => from && Math.hypot(from[0] - x, from[1] - y) > 1e-6).slice(-ARROWS);
    moves.forEach((move, i) => {
      const a = this.at(move.from), b = this.at([move.x, move.y]), away = Math.hypot(b[0] - a[0], b[1] - a[1]);
      if (away < 2) return;
      context.globalAlpha = 0.2 + (0.65 * (i + 1)) / moves.length;
      context.lineWidth = 1.25;
      context.beginPath();
      const way = segment(move.from, [move.x, move.y]).map((x) => this.at(x));
      way.forEach((x, j) => (j ? context.lineTo(...x) : context.moveTo(...x)));
      const before = way[way.length - 2], angle = Math.atan2(b[1] - before[1], b[0] - before[0]), head = Math.min(7, 2 + away / 4);
      for (const turn of [2.6, -2.6]) {
        context.moveTo(b[0] + head * Math.cos(angle + turn), b[1] + head * Math.sin(angle + turn));
        context.lineTo(...b);
      }
      context.stroke();
      context.beginPath();
      context.arc(a[0], a[1], 1.8, 0, 2 * Math.PI);
      context.fillStyle = this.ink;
      context.fill();
    });
    context.globalAlpha = 1;
  }

  /** Mistakes flash where they were made */
  flash(context, drawn, now) {
    this.flashes = this.flashes.filter((each) => now - each.begun < FLASH);
    if (!this.flashes.length || this.small) return false;
    const places = new Map(drawn.points.slice(-400).map((each) => [each.row, each]));
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--alert").trim();
    for (const { row, begun } of this.flashes) {
      const place = places.get(row);
      if (!place) continue;
      const share = still.matches ? 0.35 : (now - begun) / FLASH;
      context.globalAlpha = 1 - share;
      this.ring(context, [place.x, place.y], 5 + 17 * share, 3 - 2 * share);
    }
    context.globalAlpha = 1;
    context.strokeStyle = this.ink;
    return true;
  }

  mistaken(rows, now) {
    this.flashes.push(...rows.map((row) => ({ row, begun: now })));
    this.flashes = this.flashes.slice(-40);
  }

  support(context, drawn) {
    if (!drawn.fit?.support) return;
    for (const { x, y, row } of drawn.points) if (drawn.fit.support.has(row.position)) this.ring(context, [x, y], 8, 1.5);
  }

  ring(context, x, size, width) {
    context.lineWidth = width;
    context.beginPath();
    context.arc(...this.at(x), size, 0, 2 * Math.PI);
    context.stroke();
  }

  reference(context, p) {
    context.beginPath();
    context.arc(...this.at(p), 5.5, 0, 2 * Math.PI);
    context.fillStyle = this.paper;
    context.fill();
    context.lineWidth = 2.25;
    context.stroke();
  }
}
