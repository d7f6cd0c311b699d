/* What the charts show: counts over positions, thinned when there are many, always in the same way. */

import { errorRate } from "./confidence.js";

const MOST = 400;

/** Samples in order of their position. More than MOST: every second one is left out, but never the newest */
export class Samples {
  constructor() {
    this.list = [];
  }

  clear() {
    this.list = [];
  }

  push(sample) {
    const last = this.list[this.list.length - 1];
    if (last && sample[0] < last[0]) return;
    if (last && sample[0] === last[0]) this.list.pop();
    this.list.push(sample);
    if (this.list.length > MOST) this.list = this.list.filter((_, i) => (this.list.length - 1 - i) % 2 === 0);
  }
}

export class History {
  constructor() {
    this.counts = new Samples(); // [observed, mistakes, updates], and later the error rate's interval
    this.recent = new Samples(); // [observed, accuracy of the newest points]
    this.bounds = new Samples(); // [observed, bound]
    this.alarms = new Set();
    this.rates = []; // [seconds, points a second], of the last minute
  }

  /** From the mistakes of each block of points, where the log of them goes back to the first */
  begin(metrics) {
    const { log, window, drift } = metrics;
    let mistakes = 0;
    if (log.first === 0) {
      log.mistakes.forEach((each, i) => {
        mistakes += each;
        this.add((i + 1) * log.block, mistakes, null, 1 - each / log.block);
      });
    }
    this.add(metrics.observed, metrics.mistakes, metrics.updates, window.accuracy);
    if (drift?.last_alarm) this.alarms.add(drift.last_alarm);
  }

  add(observed, mistakes, updates, recent = null) {
    if (!observed) return;
    this.counts.push([observed, mistakes, updates]);
    if (recent !== null) this.recent.push([observed, recent]);
  }

  get accuracy() {
    return this.counts.list.map(([t, S]) => [t, 1 - S / t]);
  }

  get band() {
    return this.counts.list.map((sample) => {
      const { low, high } = (sample[3] ??= errorRate(sample[0], sample[1]));
      return [sample[0], 1 - high, 1 - low];
    });
  }

  get mistakes() {
    return this.counts.list.map(([t, S]) => [t, S]);
  }

  get updates() {
    return this.counts.list.filter((each) => each[2] > 0).map(([t, , k]) => [t, k]);
  }

  rate(seconds, value) {
    this.rates.push([seconds, value]);
    while (this.rates.length && this.rates[0][0] < seconds - 60) this.rates.shift();
  }
}
