/* The numbers and charts beside the disk. */

import { Chart } from "./charts.js";
import { count, element, percent } from "./html.js";
import { isDark } from "./palette.js";

const $ = (name) => document.getElementById(name);
const scheme = () => (isDark() ? { line: "#6cbdf2", soft: "#9daab8" } : { line: "#005a92", soft: "#5a6472" });
const PAUSE = 200; // milliseconds between two drawings at the least

export class Figures {
  constructor(feed) {
    this.feed = feed;
    this.accuracy = new Chart($("c1"), { format: (y) => percent(y, 0), range: (ys) => [Math.max(0, Math.min(...ys, 0.9) - 0.05), 1] });
    this.updates = new Chart($("c2"), { log: true });
    this.rate = new Chart($("c4"), { range: (ys) => [0, Math.max(10, ...ys) * 1.1], along: (t) => (t ? `${t}\u202fs` : "now") });
    this.named = new Map(["points", "mistakes", "updates", "version"].map((name) => [name, element("b")]));
    $("numbers").replaceChildren(...[...this.named].map(([name, value]) => element("div", { class: "number" }, value, element("span", { text: name }))));
    $("margin").onchange = ({ target }) => target.checkValidity() && feed.state(target.valueAsNumber || null);
    $("margin").value = feed.margin ?? "";
  }

  /** Soon, and not too often */
  show() {
    this.shown ??= setTimeout(() => {
      this.shown = null;
      this.numbers();
      this.plot();
    }, PAUSE);
  }

  numbers() {
    const { newest, certificate, history } = this.feed, last = history.counts.list.at(-1);
    for (const [name, place] of this.named) place.textContent = count(Math.max(newest[name === "points" ? "observed" : name], 0));
    const proof = certificate?.error_rate, rate = newest.observed ? 1 - newest.mistakes / newest.observed : null;
    const [low, high] = proof?.estimate != null ? [1 - proof.high, 1 - proof.low] : last ? history.band.at(-1).slice(1) : [0, 1];
    $("accuracy").replaceChildren(...(rate === null ? [] : [percent(rate), element("small", { text: ` between ${percent(low)} and ${percent(high)}` })]));
    const { title, counted, bound, words } = proven(newest, certificate);
    $("t2").textContent = title;
    $("bound").replaceChildren(count(counted), ...(bound ? [element("small", { text: ` of ${count(Math.floor(bound))}` })] : []));
    $("certified").textContent = words;
    $("stated").hidden = certificate?.radius == null && !this.feed.margin;
  }

  plot() {
    const { history, certificate } = this.feed, { line, soft } = scheme(), { list } = history.counts, bounds = history.bounds.list;
    this.accuracy.draw({
      series: [{ points: history.recent.list, colour: soft, width: 1.25, dash: [3, 3] }, { points: history.accuracy, colour: line, width: 2.25 }],
      bands: [{ points: history.band, colour: line }],
      marks: [...history.alarms].filter((at) => at >= (list[0]?.[0] ?? 0)),
    });
    const drawn = bounds.length && list.length ? [[list[0][0], bounds[0][1]], ...bounds, [list.at(-1)[0], bounds.at(-1)[1]]] : [];
    this.updates.draw({
      series: [{ points: drawn, colour: soft, dash: [6, 4] }, { points: certificate?.vote ? history.mistakes : history.updates, colour: line, width: 2.25 }].filter((each) => each.points.length),
    });
    $("drift").replaceChildren(...(history.alarms.size ? [element("i", { class: "mark" }), `drift found${history.alarms.size > 1 ? ` ${history.alarms.size} times` : ""}`] : []));
  }

  /** The last minute's points a second: once a second */
  watch() {
    const { newest, history } = this.feed;
    let before = newest.observed, at = performance.now();
    setInterval(() => {
      const now = performance.now(), rate = ((newest.observed - before) * 1000) / (now - at);
      [before, at] = [newest.observed, now];
      history.rate(now / 1000, Math.max(0, rate));
      $("speed").textContent = rate >= 1 ? count(rate) : "";
      this.rate.draw({ from: -60, series: [{ points: history.rates.map(([t, n]) => [t - now / 1000, n]), colour: scheme().line }] });
    }, 1000);
  }

  metrics() {
    const { hints = [], members = [] } = this.feed.metrics ?? {};
    $("hints").hidden = !hints.length;
    $("hints").replaceChildren(...hints.map((hint) => element("li", { text: hint })));
    $("voters").hidden = !members?.length;
    $("members").tBodies[0].replaceChildren(...(members ?? []).map((each) => {
      const name = each.algorithm.replace("_", " ");
      const bar = (value, what, digits) => element("td", {}, element("progress", { max: 1, value: value ?? 0, "aria-label": `${what} of ${name}` }), element("span", { text: percent(value, digits) }));
      return element("tr", {}, element("th", { scope: "row", text: name }), bar(each.accuracy, "accuracy", 1), bar(each.weight, "share", 0));
    }));
  }
}

/** What is counted, what bounds it, and why */
function proven({ updates, observed }, certificate) {
  if (certificate?.vote && observed) {
    const { bound, best, mistakes, members } = certificate.vote, least = members.find((each) => each.algorithm === best)?.mistakes;
    const words = `Dashed: the most that the vote can make on any stream whose best member, here ${best.replace("_", " ")}, makes ${count(least ?? 0)}.`;
    return { title: "Mistakes under the vote's bound", counted: mistakes, bound, words };
  }
  const { bound, margin, disproved, largest_margin: largest } = certificate ?? {};
  const none = { title: "Updates", counted: updates, bound: null };
  if (!certificate || !observed) return { ...none, words: "" };
  if (disproved) return { ...none, words: `No classifier of this kind has a margin of ${margin} on this stream: at the most ${largest.toPrecision(3)}.` };
  if (bound && margin) return { ...none, title: "Updates under the bound", bound, words: `Dashed: what the theorem allows where the margin is ε\u00a0=\u00a0${margin.toPrecision(3)}.` };
  if (certificate.radius == null) return { ...none, words: "This learner changes with every point; no theorem bounds that." };
  const most = largest ? ` It is ${largest.toPrecision(3)} at the most.` : "";
  return { ...none, words: `The theorem's bound needs the margin of the true points.${most}` };
}
