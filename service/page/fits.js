/* The fits of a session: a list, and buttons that draw one over the disk or promote it. */

import { Problem, get, post } from "./api.js";
import { dot } from "./ball.js";
import { element, percent, plural } from "./html.js";
import { overlay } from "./overlay.js";
import { throttled } from "./throttle.js";

const LISTED = 6, AGAIN = 700, PAUSE = 250; // milliseconds
const OPEN = ["queued", "running"];

const told = (fit) =>
  [
    fit.points != null && plural(fit.points, "point"),
    fit.training_accuracy != null && `${percent(fit.training_accuracy)} of them right`,
    fit.support_vectors && plural(dot(fit.support_vectors, fit.support_vectors.map(() => 1)), "support vector"),
    fit.certificate && `duality gap ${fit.certificate.gap.toExponential(0)}`,
  ].filter(Boolean).join(" · ");

export class Fits {
  /** changed(): another fit is drawn over the scene, or none */
  constructor(place, feed, changed) {
    Object.assign(this, { place, feed, changed, fits: [], shown: null });
    this.load = throttled(() => this.list(), PAUSE);
  }

  async list() {
    this.fits = (await get(`${this.feed.base}/fits`)).fits;
    this.show();
    if (this.fits.some((fit) => OPEN.includes(fit.status))) setTimeout(this.load, AGAIN);
  }

  show() {
    const none = element("p", { class: "soft", text: "None yet. A fit is a batch classifier with a proof of its optimum; it can take over the stream." });
    this.place.replaceChildren(...(this.fits.length ? this.fits.slice(0, LISTED).map((fit) => this.row(fit)) : [none]));
  }

  row(fit) {
    const title = [fit.kind, fit.kind === "svm" && fit.margin, fit.features].filter(Boolean).join(", ");
    const buttons = element("div", { class: "buttons" }), { session } = this.feed;
    if (fit.status === "done" && session.dimension === 2 && session.labels.length === 2) {
      const on = fit.id === this.shown;
      buttons.append(element("button", { class: "plain", type: "button", text: on ? "Hide" : "Draw", "aria-pressed": String(on), onclick: () => this.attempt(() => this.draw(on ? null : fit)) }));
    }
    if (fit.status === "done") {
      const button = element("button", { class: "plain", type: "button", text: "Promote", title: "Start the online learner from this fit" });
      button.onclick = async () => {
        button.disabled = true;
        await this.attempt(() => post(`${this.feed.base}/promote`, { fit: fit.id }));
        button.disabled = false;
      };
      buttons.append(button);
    }
    const row = element("div", { class: "fit" }, element("p", {}, element("b", { text: title }), ` ${fit.status === "done" ? "" : fit.status}`), buttons);
    if (fit.status === "running") row.append(element("progress", { max: 1, value: fit.progress, "aria-label": `progress of the ${fit.kind}` }));
    row.append(element("p", { class: "soft", text: fit.failure ? fit.failure.detail : told(fit) }));
    return row;
  }

  async draw(fit) {
    const { base, session, scene } = this.feed;
    this.shown = fit?.id ?? null;
    scene.fit = fit ? await overlay(base, fit, session, scene.points.rows) : null;
    this.changed();
    this.show();
  }

  /** A fit of the retained points, with the service's own defaults */
  ask() {
    return this.attempt(async () => {
      await post(`${this.feed.base}/fits`, {});
      this.load();
    });
  }

  async attempt(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.place.prepend(element("p", { class: "said", role: "alert", text: error.message }));
    }
  }
}
