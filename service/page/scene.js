/* All that is drawn, as plain values on the screen's unit disk (y upwards, `view` in the middle). canvas.js paints it;
   tests hold it against Python. */

import { add, curve, moved, scaled } from "./ball.js";
import { band, classifier } from "./classifier.js";
import { frameOf } from "./frame.js";

/** A session's points, the newest last, at most `most`: the oldest go first */
export class Points {
  constructor(most) {
    this.most = most;
    this.rows = [];
    this.next = 0; // the position behind the newest
  }

  /** rows: {position, x (unit ball), label (index), predicted, truth}, in order; those that are here already are left out */
  push(rows) {
    const fresh = rows.filter((row) => row.position >= this.next);
    if (!fresh.length) return [];
    this.rows.push(...fresh);
    this.next = fresh[fresh.length - 1].position + 1;
    if (this.rows.length > this.most * 1.1) this.rows.splice(0, this.rows.length - this.most);
    return fresh;
  }

  clear() {
    this.rows = [];
    this.next = 0;
  }
}

export class Scene {
  constructor(session) {
    this.session = session;
    this.root = Math.sqrt(session.curvature);
    this.points = new Points(Math.max(200, Math.min(session.keep_points || 2000, 5000)));
    this.view = [0, 0];
    this.model = null;
    this.margin = null; // of the certificate, drawn around a geodesic
    this.fit = null; // {form | outline, support}
    this.until = null; // the time slider: points from this position on are not shown
    this.frame = frameOf(session.dimension, [], null);
    this.framed = 0;
  }

  unit(x) {
    return scaled(x, this.root);
  }

  setModel(model) {
    this.model = model;
    this.reframe();
  }

  /** Many dimensions: a plane is chosen anew whenever the points have doubled, and when the reference point moves */
  reframe() {
    const d = this.session.dimension, { rows } = this.points, p = this.model?.reference;
    const q = p && !Array.isArray(p[0]) ? this.unit(p) : null, name = JSON.stringify(q);
    if (d > 2 && rows.length && (rows.length >= 2 * this.framed || name !== this.about)) {
      this.frame = frameOf(d, rows.map((row) => row.x), q);
      [this.framed, this.about] = [rows.length, name];
      for (const row of rows) row.at = row.from = undefined;
    }
    const drawable = this.model && (d <= 2 || rows.length);
    this.classifier = drawable ? classifier(this.model, this.frame) : null;
  }

  push(rows) {
    const fresh = this.points.push(rows);
    if (this.session.dimension > 2 && this.points.rows.length >= 2 * this.framed) this.reframe();
    return fresh;
  }

  screen(x) {
    return add([-this.view[0], -this.view[1]], x);
  }

  /** Where a row of the points is, and where it was before it moved */
  place(row) {
    row.at ??= this.frame.flat(row.x, row.label);
    if (row.truth && !row.from) row.from = this.frame.flat(row.truth, row.label);
    return row;
  }

  /** Everything, on the screen */
  drawn() {
    const { classifier: found, view } = this;
    const shown = this.points.rows.filter((row) => this.until === null || row.position < this.until);
    const forms = found?.forms.map((q) => moved(q, view)) ?? [];
    const binary = found?.kind === "one";
    const boundary = binary ? curve(forms[0]) : null;
    const references = this.references();
    return {
      view,
      kind: found?.kind ?? "none",
      boundary,
      form: forms.length === 1 ? forms[0] : null,
      bands: binary && boundary?.name === "geodesic" && this.margin > 0 && this.frame.kind !== "projection" ? band(found.forms[0], this.margin).map((q) => moved(q, view)) : [],
      geodesic: found?.kind === "strategic" && forms.length ? curve(forms[0]) : null,
      threshold: found?.threshold?.map((x) => this.screen(x)) ?? null,
      classAt: found?.decider?.(view) ?? null,
      references: references.map((p) => this.screen(p)),
      fit: this.fit?.form ? { ...this.fit, form: moved(this.fit.form, view), curve: curve(moved(this.fit.form, view)) } : this.fit,
      points: shown.map((row) => {
        const { at, from } = this.place(row), [x, y] = this.screen(at);
        return { x, y, row, from: from ? this.screen(from) : null };
      }),
    };
  }

  references() {
    const p = this.model?.reference;
    if (!p || !this.classifier) return [];
    if (this.frame.centred) return [[0, 0]];
    return (Array.isArray(p[0]) ? p : [p]).map((each) => this.frame.flat(this.unit(each)));
  }

  /** Why no boundary is drawn, or what is drawn instead */
  said() {
    const { model, classifier: found } = this, labels = this.session.labels;
    if (!model) return "";
    if (this.session.dimension > 2 && !this.points.rows.length) return "Without points there is no plane to project on.";
    if (!found || found.kind === "cold") return "Nothing has been learned yet: no boundary.";
    if (found.kind === "one" && !curve(moved(found.forms[0], this.view))) {
      const label = labels[found.decider([0, 0])(0, 0)];
      if (this.frame.kind === "projection") return "The boundary does not meet this plane.";
      const timelike = model.features === "hyperboloid" || model.algorithm === "hyperboloid";
      return `${timelike ? "w is timelike: no" : "No"} boundary; every point is called ${label}.`;
    }
    return "";
  }
}
