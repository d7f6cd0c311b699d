/* The disk one can touch: draws a scene when something has changed, moves it, and tells which point is under the pointer. */

import { panned } from "./ball.js";
import { Painter } from "./canvas.js";
import { onScheme } from "./palette.js";

const NEAR = 14; // pixels
const REST = 140; // milliseconds without a change, after which the regions are drawn finely
const BUSY = 30; // milliseconds between two coarse drawings of the regions

export class Disk {
  /** hover(row | null, [px, py]): which point is under the pointer */
  constructor(host, scene, hover, options) {
    Object.assign(this, { host, scene, hover, dirty: { ground: true, marks: true, lines: true }, hovered: null, frames: 0 });
    this.painter = new Painter(host, options);
    this.grounded = 0;
    onScheme(() => {
      this.painter.recolour();
      this.touch("ground", "marks", "lines");
    });
    new ResizeObserver(() => {
      this.painter.resize();
      this.touch("ground", "marks", "lines");
    }).observe(host);
    if (!options?.small && !options?.ornament) this.listen();
    this.touch();
  }

  touch(...layers) {
    for (const layer of layers) this.dirty[layer] = true;
    this.pending ??= requestAnimationFrame((now) => {
      this.pending = null;
      this.paint(now);
    });
  }

  paint(now) {
    const { dirty, painter } = this;
    this.frames++;
    const drawn = (this.drawn = this.scene.drawn());
    if (dirty.ground && now - this.grounded >= BUSY) {
      painter.ground(drawn, false);
      this.grounded = now;
      dirty.ground = false;
      clearTimeout(this.rest);
      this.rest = setTimeout(() => this.drawn && painter.ground(this.drawn, true), REST);
    }
    if (dirty.marks) painter.marks(drawn);
    dirty.marks = false;
    const at = this.hovered && drawn.points.find((each) => each.row === this.hovered);
    const burning = painter.lines(drawn, at ? [at.x, at.y] : null, now);
    dirty.lines = false;
    if (burning || dirty.ground) this.touch();
  }

  look(view) {
    this.scene.view = view;
    this.touch("ground", "marks", "lines");
  }

  pan(from, to) {
    this.look(panned(this.scene.view, from, to));
  }

  /** Towards a point of the screen, or away from it: what is there comes nearer to the middle */
  approach(at, share) {
    const r = Math.hypot(...at), d = 2 * Math.atanh(Math.min(r, 0.99)), to = Math.tanh((d * (1 - share)) / 2);
    if (r > 1e-6) this.pan(at, at.map((each) => (each * to) / r));
  }

  position(event) {
    const box = this.host.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  listen() {
    const { host } = this, held = new Map();
    host.addEventListener("pointerdown", (event) => {
      if (this.painter.under(...this.position(event))) {
        held.set(event.pointerId, this.position(event));
        host.setPointerCapture(event.pointerId);
      }
    });
    host.addEventListener("pointermove", (event) => {
      const now = this.position(event), before = held.get(event.pointerId);
      if (!before) return this.point(now);
      const from = this.painter.under(...before), to = this.painter.under(...now);
      held.set(event.pointerId, now);
      if (held.size === 2) return this.pinch(held, event.pointerId, before, now);
      if (from && to) this.pan(from, to);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      host.addEventListener(name, (event) => {
        held.delete(event.pointerId);
        if (event.pointerType !== "mouse") this.point(this.position(event));
      });
    }
    host.addEventListener("pointerleave", () => this.choose(null));
    host.addEventListener("wheel", (event) => {
      const at = this.painter.under(...this.position(event));
      if (!at) return;
      event.preventDefault();
      this.approach(at, Math.max(-0.3, Math.min(0.3, -event.deltaY / 600)));
    }, { passive: false });
    host.addEventListener("keydown", (event) => this.key(event));
  }

  /** Two fingers: apart is nearer */
  pinch(held, moved, before, now) {
    const other = [...held.entries()].find(([id]) => id !== moved)[1];
    const apart = (x) => Math.hypot(x[0] - other[0], x[1] - other[1]);
    const middle = this.painter.under((now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    if (middle) this.approach(middle, Math.max(-0.2, Math.min(0.2, (apart(now) - apart(before)) / 250)));
  }

  key(event) {
    const step = 0.12, steps = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (steps[event.key]) this.pan([0, 0], steps[event.key]);
    else if (event.key === "+" || event.key === "=") this.nearer(0.25);
    else if (event.key === "-") this.nearer(-0.25);
    else if (event.key === "0") this.look([0, 0]);
    else if (event.key.toLowerCase() === "p") this.home();
    else if (event.key.toLowerCase() === "n") this.newest(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") this.choose(null);
    else return;
    event.preventDefault();
  }

  /** By keys there is no pointer to go towards: the point that is chosen, or the reference point */
  nearer(share) {
    const at = this.drawn?.points.find((each) => each.row === this.hovered), [p] = this.drawn?.references ?? [];
    this.approach(at ? [at.x, at.y] : p && Math.hypot(...p) > 0.01 ? p : [0, 0.5], share);
  }

  home() {
    const [p] = this.scene.references();
    this.look(p ?? [0, 0]);
  }

  /** The newest point, and then older ones */
  newest() {
    const { points } = this.drawn ?? { points: [] }, at = points.findIndex((each) => each.row === this.hovered);
    const next = points[at > 0 ? at - 1 : points.length - 1];
    if (next) this.choose(next);
  }

  point([px, py]) {
    let best = null, nearest = NEAR * NEAR;
    for (const each of this.drawn?.points ?? []) {
      const [x, y] = this.painter.at([each.x, each.y]), away = (x - px) ** 2 + (y - py) ** 2;
      if (away <= nearest) [best, nearest] = [each, away];
    }
    this.choose(best);
  }

  choose(found) {
    const row = found?.row ?? null;
    if (row === this.hovered) return;
    this.hovered = row;
    this.hover(row, found ? this.painter.at([found.x, found.y]) : null);
    this.touch("lines");
  }
}
