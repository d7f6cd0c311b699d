/* What the page knows of its session: the scene's points and classifier, counts, metrics, the certificate. Events keep it up
   to date; what they leave out is asked for. */

import { Problem, get } from "./api.js";
import { follow } from "./events.js";
import { History } from "./history.js";
import { Scene } from "./scene.js";
import { throttled } from "./throttle.js";

const NUMBERS = 400_000; // coordinates that the page keeps at the most
const POINTS = 5000; // and points
const MODEL = 80, METRICS = 1000, FILL = 700, SESSION = 500; // milliseconds between two requests at the least
const RECENT = 200; // points whose accuracy the dashed line shows

export class Feed {
  /** tell(what, rows): "points", "announced" and "mistakes" (rows), "model", "counts", "metrics", "session", "fits",
      "connection", or a Problem that ends it all. margin: one that the reader states, for the certificate */
  constructor(base, session, tell, margin = null) {
    Object.assign(this, { base, tell, margin, session, status: session.status, connection: "", metrics: null, certificate: null });
    this.history = new History();
    this.scene = new Scene(session);
    this.scene.points.most = Math.max(100, Math.min(this.scene.points.most, POINTS, Math.floor(NUMBERS / session.dimension)));
    this.newest = { observed: session.observed, mistakes: session.mistakes, updates: session.updates, version: -1 };
    this.begun = session.observed; // mistakes since then are told
    this.samples = new Map(); // what events told of points that are still to be fetched from the log
    this.recently = []; // [observed, mistakes] of the last commits, for the accuracy of the newest points
    this.certified = 0; // points there were when the best margin was asked for
    this.label();
    this.model = throttled(() => this.loadModel(), MODEL);
    this.fill = throttled(() => this.loadLog(), FILL);
    this.measure = throttled(() => this.loadMetrics(), METRICS);
    this.refresh = throttled(() => this.loadSession(), SESSION);
  }

  /** Everything that was, then everything that comes */
  async begin() {
    const { session, base } = this;
    const replayed = session.observed > 0 && session.keep_points <= POINTS * 4 && session.dimension <= 16;
    const [found] = await Promise.all([get(`${base}/metrics`), replayed ? null : this.fill(), this.model()]);
    this.metrics = found;
    if (!replayed) this.history.begin(found);
    this.tell("metrics");
    this.measure();
    follow(`${base}/events`, (name, data) => this.onEvent(name, data), (now) => {
      if (!(now instanceof Problem)) this.connection = now;
      this.tell(now instanceof Problem ? now : "connection");
    }, replayed ? "0-0" : null);
  }

  /** Which index a label has; labels may be added */
  label() {
    this.index = new Map(this.session.labels.map((label, k) => [label, k]));
  }

  // ----------------------------------------------------------------------------------------------------- requests

  async loadModel() {
    const model = await get(`${this.base}/model`);
    if (this.scene.until !== null) return;
    this.newest.version = Math.max(this.newest.version, model.version);
    this.scene.setModel(model);
    this.tell("model");
  }

  /** The newest retained points that are not here yet */
  async loadLog() {
    const { scene, newest, samples, index } = this, { most } = scene.points;
    let from = Math.max(scene.points.next, newest.observed - most, 0);
    for (let tries = 0; tries < 3; tries++) {
      try {
        const page = await get(`${this.base}/log?from=${from}&limit=${most}`);
        const rows = page.points.map((x, i) => {
          const position = page.from + i;
          return { position, x: scene.unit(x), label: index.get(page.labels[i]), ...samples.get(position) };
        });
        for (const position of samples.keys()) if (position < page.to) samples.delete(position);
        scene.push(rows);
        return this.tell("points");
      } catch (error) {
        if (!(error instanceof Problem) || error.status !== 410 || !(error.members.first >= 0)) throw error;
        from = error.members.first;
      }
    }
  }

  async loadMetrics() {
    this.metrics = await get(`${this.base}/metrics`);
    if (this.metrics.drift?.last_alarm) this.history.alarms.add(this.metrics.drift.last_alarm);
    this.tell("metrics");
    await this.certify();
    this.tell("metrics");
  }

  async loadSession() {
    this.session = this.scene.session = { ...this.session, ...(await get(this.base)) };
    this.label();
    this.tell("session");
  }

  /** The best margin of a classifier through the reference point is a fit: asked for when the stream has grown by a fifth,
      and every class was seen */
  async certify() {
    const { scene, newest, margin } = this;
    const through = scene.model?.reference && this.metrics.classes.every((each) => each.points > 0);
    const best = !margin && through && newest.observed >= 1.2 * this.certified;
    const found = await get(`${this.base}/certificate${margin ? `?margin=${margin}` : best ? "?margin=best" : ""}`);
    if (margin !== this.margin) return;
    if (best) this.certified = newest.observed;
    const before = this.certificate;
    this.certificate = best || margin || !before ? found : { ...found, margin: before.margin, bound: before.bound };
    scene.margin = this.certificate.margin && !this.certificate.disproved ? this.certificate.margin * scene.root : null;
    const bound = this.certificate.vote?.bound ?? this.certificate.bound;
    if (bound) this.history.bounds.push([newest.observed, bound]);
  }

  /** The reader states a margin; null: the retained points' own */
  state(margin) {
    Object.assign(this, { margin, certified: 0, certificate: null });
    this.history.bounds.clear();
    this.measure();
  }

  // ------------------------------------------------------------------------------------------------------- events

  onEvent(name, data) {
    if (name === "commit") this.onCommit(data);
    else if (name === "reset") this.onReset(data);
    else if (name === "fit") this.tell("fits");
    else {
      this.count(data);
      this.status = data.status ?? this.status;
      this.refresh();
      this.model();
    }
    this.tell("connection");
  }

  onReset({ session, model }) {
    this.status = session.status;
    this.session = { ...this.session, ...session };
    if (!this.history.counts.list.length) this.history.begin(this.metrics);
    this.count(session);
    if (this.scene.until === null) this.scene.setModel(model);
    this.fill();
    this.measure();
  }

  onCommit(data) {
    const { scene, index, newest } = this, changed = data.version !== newest.version, warm = this.status !== data.status;
    this.status = data.status;
    this.count(data);
    for (const at of data.alarms ?? []) this.history.alarms.add(at);
    const rows = data.points.map((x, i) => ({
      position: data.from + i,
      x: scene.unit(x),
      label: index.get(data.labels[i]),
      predicted: index.get(data.predictions[i]),
      truth: data.truth?.[i] ? scene.unit(data.truth[i]) : undefined,
    }));
    const whole = data.points.length === data.observed - data.from;
    if (this.session.keep_points === 0 || (whole && data.from <= scene.points.next)) {
      this.mistakes(scene.push(rows));
      this.tell("points");
    } else {
      for (const { position, predicted, truth } of rows) this.samples.set(position, { predicted, truth });
      scene.announce(rows);
      this.mistakes(rows);
      this.tell("announced");
      this.fill();
    }
    if (changed) this.model();
    if (warm) this.refresh();
    this.measure();
    this.tell("counts");
  }

  count({ observed, mistakes, updates, version }) {
    const { newest, recently } = this;
    Object.assign(newest, { observed, mistakes, updates, version: Math.max(version, newest.version) });
    recently.push([observed, mistakes]);
    while (recently.length > 2 && recently[1][0] <= observed - RECENT) recently.shift();
    const [t, S] = recently[0], n = observed - t;
    this.history.add(observed, mistakes, updates, n >= 20 ? 1 - (mistakes - S) / n : null);
  }

  mistakes(rows) {
    const wrong = rows.filter((row) => row.position >= this.begun && row.predicted !== undefined && row.predicted !== row.label);
    if (wrong.length) this.tell("mistakes", wrong);
  }
}
