/* The slider over the log: the classifier as it was, and the points there were. */

import { Problem, get } from "./api.js";
import { count } from "./html.js";
import { throttled } from "./throttle.js";

const $ = (name) => document.getElementById(name);

export class Past {
  /** changed(): the scene shows another time */
  constructor(feed, changed) {
    Object.assign(this, { feed, changed, first: 0 });
    this.load = throttled(() => this.ask(), 60);
    $("past").oninput = (event) => this.go(Number(event.target.value));
    $("now").onclick = () => this.go(feed.newest.observed);
  }

  show() {
    const { scene, newest, session } = this.feed, slider = $("past"), live = scene.until === null;
    slider.max = newest.observed;
    slider.min = Math.max(this.first, newest.observed - session.keep_points, 0);
    if (live) slider.value = newest.observed;
    slider.disabled = !newest.observed;
    slider.setAttribute("aria-valuetext", live ? "now" : `after ${scene.until} points`);
    $("position").textContent = live ? `all ${count(newest.observed)} points` : `${count(scene.until)} of ${count(newest.observed)}`;
    $("now").disabled = live;
  }

  go(position) {
    const { feed } = this;
    feed.scene.until = position >= feed.newest.observed ? null : position;
    this.show();
    this.changed();
    if (feed.scene.until === null) feed.model();
    else this.load();
  }

  async ask() {
    const { scene, base } = this.feed, position = scene.until;
    if (position === null) return;
    try {
      const model = await get(`${base}/at/${position}/model`);
      if (scene.until !== position) return;
      scene.setModel(model);
      this.changed();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.members.first >= 0) this.first = error.members.first;
      $("position").textContent = error.message;
    }
  }
}
