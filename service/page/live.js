/* GET /sessions/{id}/live: a session's disk as it learns. */

import { Problem, call, count, element, get, percent, post, twin } from "./api.js";
import { Chart } from "./charts.js";
import { Disk } from "./disk.js";
import { follow } from "./events.js";
import { list, listed, overlay } from "./fits.js";
import { History } from "./history.js";
import { isDark, markOf, onScheme } from "./palette.js";
import { Scene } from "./scene.js";

const NUMBERS = 400_000; // coordinates that the page keeps at the most
const POINTS = 5000; // and points
const MODEL = 80, METRICS = 1000, FILL = 700; // milliseconds between two requests at the least
const RECENT = 200; // points whose accuracy the dashed line shows

const $ = (name) => document.getElementById(name);
const id = decodeURIComponent(location.pathname.split("/")[2]);
const base = `/sessions/${encodeURIComponent(id)}`;
const scheme = () => (isDark() ? { line: "#6cbdf2", soft: "#9daab8" } : { line: "#005a92", soft: "#5a6472" });

let session, scene, disk, history, status = "live", connection = "", charts;
let index = new Map(); // of the labels
const newest = { observed: 0, mistakes: 0, updates: 0, version: -1 };
const samples = new Map(); // what events told of points that are still to be fetched from the log
let recently = []; // [observed, mistakes] of the last commits, for the accuracy of the newest points
let begun = 0; // points there were when the page was opened: mistakes since then flash
let metrics = null, certificate = null, fits = [], shownFit = null;

// ------------------------------------------------------------------------------------ requests, one at a time each

let underway = 0;
/** Calls `work` soon, never twice at once, at least `pause` after it ended; again if it was wanted meanwhile */
function throttled(work, pause) {
  let busy = false, wanted = false;
  const run = async () => {
    wanted = true;
    if (busy) return;
    busy = true;
    underway++;
    while (wanted) {
      wanted = false;
      try {
        await work();
      } catch (error) {
        if (!(error instanceof Problem || error instanceof TypeError)) throw error; // the event stream says that it is lost
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    busy = false;
    underway--;
  };
  return run;
}

const loadModel = throttled(async () => {
  const model = await get(`${base}/model`);
  if (scene.until !== null) return;
  newest.version = Math.max(newest.version, model.version);
  scene.setModel(model);
  disk.touch("ground", "lines");
  tell();
}, MODEL);

/** The newest retained points that are not here yet */
const fill = throttled(async () => {
  const most = scene.points.most;
  let from = Math.max(scene.points.next, newest.observed - most, 0);
  for (let tries = 0; tries < 3; tries++) {
    try {
      const page = await get(`${base}/log?from=${from}&limit=${most}`);
      const rows = page.points.map((x, i) => {
        const position = page.from + i, more = samples.get(position);
        return { position, x: scene.unit(x), label: index.get(page.labels[i]), ...more };
      });
      for (const position of samples.keys()) if (position < page.to) samples.delete(position);
      return arrived(rows);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 410 || !(error.members.first >= 0)) throw error;
      from = error.members.first;
    }
  }
}, FILL);

const loadMetrics = throttled(async () => {
  metrics = await get(`${base}/metrics`);
  members();
  hints();
  if (metrics.drift?.last_alarm) history.alarms.add(metrics.drift.last_alarm);
  numbers();
  plot();
  await certify();
  numbers();
  plot();
}, METRICS);

let certified = 0;
/** The best margin of a classifier through the reference point is a fit: asked for when the stream has grown by a fifth,
    and every class was seen */
async function certify() {
  const through = scene.model?.reference && metrics.classes.every((each) => each.points > 0);
  const best = through && newest.observed >= 1.2 * certified;
  const found = await get(`${base}/certificate${best ? "?margin=best" : ""}`);
  if (best) certified = newest.observed;
  certificate = best || !certificate ? found : { ...found, margin: certificate.margin, bound: certificate.bound };
  scene.margin = certificate.margin ? certificate.margin * scene.root : null;
  if (certificate.bound) history.bounds.push([newest.observed, certificate.bound]);
  disk.touch("lines");
}

const loadFits = throttled(async () => {
  fits = await list(base);
  showFits();
  if (fits.some((fit) => ["queued", "running"].includes(fit.status))) setTimeout(loadFits, 700);
}, 250);

// -------------------------------------------------------------------------------------------------------- events

function onEvent(name, data) {
  if (name === "reset") {
    status = data.session.status;
    session = { ...session, ...data.session };
    if (!history.counts.list.length) history.begin(metrics);
    counted(data.session);
    if (scene.until === null) scene.setModel(data.model);
    fill();
    loadMetrics();
  } else if (name === "commit") onCommit(data);
  else if (name === "fit") loadFits();
  else onOther(data);
  pill();
}

function onOther(data) {
  counted(data);
  status = data.status ?? status;
  refresh();
  loadModel();
}

const refresh = throttled(async () => {
  session = { ...session, ...(await get(base)) };
  heading();
}, 500);

function onCommit(data) {
  const changed = data.version !== newest.version, warm = status !== data.status;
  status = data.status;
  counted(data);
  for (const at of data.alarms ?? []) history.alarms.add(at);
  const rows = data.points.map((x, i) => ({
    position: data.from + i,
    x: scene.unit(x),
    label: index.get(data.labels[i]),
    predicted: index.get(data.predictions[i]),
    truth: data.truth?.[i] ? scene.unit(data.truth[i]) : undefined,
  }));
  const whole = data.points.length === data.observed - data.from;
  if (session.keep_points === 0 || (whole && data.from <= scene.points.next)) arrived(rows);
  else {
    for (const { position, predicted, truth } of rows) samples.set(position, { predicted, truth });
    fill();
  }
  if (changed) loadModel();
  if (warm) refresh();
  loadMetrics();
  schedule();
}

function counted({ observed, mistakes, updates, version }) {
  Object.assign(newest, { observed, mistakes, updates, version: Math.max(version, newest.version) });
  recently.push([observed, mistakes]);
  while (recently.length > 2 && recently[1][0] <= observed - RECENT) recently.shift();
  const [t, S] = recently[0], whole = observed - t;
  history.add(observed, mistakes, updates, whole >= 20 ? 1 - (mistakes - S) / whole : null);
}

function arrived(rows) {
  const fresh = scene.push(rows);
  const wrong = fresh.filter((row) => row.position >= begun && row.predicted !== undefined && row.predicted !== row.label);
  disk.painter.mistaken(wrong, performance.now());
  disk.touch("marks", "lines");
  tell();
}

// ---------------------------------------------------------------------------------------------- what stands around

let scheduled = null;
/** Numbers and charts, five times a second at the most */
function schedule() {
  scheduled ??= setTimeout(() => {
    scheduled = null;
    numbers();
    plot();
    slider();
  }, 200);
}

function plot() {
  const { line, soft } = scheme(), { list } = history.counts, bounds = history.bounds.list;
  charts.accuracy.draw({
    series: [{ points: history.recent.list, colour: soft, width: 1.25, dash: [3, 3] }, { points: history.accuracy, colour: line, width: 2.25 }],
    bands: [{ points: history.band, colour: line }],
    marks: [...history.alarms].filter((at) => at >= (list[0]?.[0] ?? 0)),
  });
  const drawnBounds = bounds.length && list.length ? [[list[0][0], bounds[0][1]], ...bounds, [list.at(-1)[0], bounds.at(-1)[1]]] : [];
  charts.updates.draw({
    series: [{ points: drawnBounds, colour: soft, dash: [6, 4] }, { points: history.updates, colour: line, width: 2.25 }].filter((each) => each.points.length),
  });
  $("drift").replaceChildren(...(history.alarms.size ? [element("i", { class: "mark" }), `drift found, ${history.alarms.size}×`] : []));
}

function numbers() {
  const shown = [
    ["points", count(newest.observed)],
    ["mistakes", count(newest.mistakes)],
    ["updates", count(newest.updates)],
    ["version", count(Math.max(newest.version, 0))],
  ];
  $("numbers").replaceChildren(...shown.map(([name, value]) => element("div", { class: "number" }, element("b", { text: value }), element("span", { text: name }))));
  const rate = newest.observed ? 1 - newest.mistakes / newest.observed : null, last = history.counts.list.at(-1);
  const proof = certificate?.error_rate;
  const [low, high] = proof?.estimate != null ? [1 - proof.high, 1 - proof.low] : last ? history.band.at(-1).slice(1) : [0, 1];
  $("accuracy").textContent = rate === null ? "" : `${percent(rate)}, between ${percent(low)} and ${percent(high)}`;
  const bound = certificate?.bound;
  $("t2").textContent = bound ? "Updates under the bound" : "Updates";
  $("bound").textContent = bound ? `${count(newest.updates)} of ${count(Math.floor(bound))}` : `${count(newest.updates)}`;
  $("certified").textContent = proven();
}

function proven() {
  if (!certificate) return "";
  const { margin, bound, largest_margin: largest } = certificate;
  if (bound && margin) return `Dashed: what the theorem allows for the retained points' own margin, ε = ${margin.toPrecision(3)}.`;
  if (largest) return `No classifier of this kind has a margin above ${largest.toPrecision(3)} on this stream; no margin, no bound.`;
  return "No margin is known of these points, so no bound.";
}

function hints() {
  const found = metrics?.hints ?? [];
  $("hints").hidden = !found.length;
  $("hints").replaceChildren(...found.map((hint) => element("li", { text: hint })));
}

function members() {
  const found = metrics?.members ?? null;
  $("voters").hidden = !found?.length;
  if (!found?.length) return;
  $("members").tBodies[0].replaceChildren(...found.map((each) => element("tr", {},
    element("th", { scope: "row", text: each.algorithm.replace("_", " ") }),
    element("td", {}, element("progress", { max: 1, value: each.accuracy ?? 0, "aria-label": `accuracy of ${each.algorithm}` }), ` ${percent(each.accuracy)}`),
    element("td", {}, element("progress", { max: 1, value: each.weight, "aria-label": `weight of ${each.algorithm}` }), ` ${percent(each.weight, 0)}`))));
}

function heading() {
  const { name, algorithm, dimension, curvature, budget, labels } = session, title = name || session.id;
  document.title = `${title} · Horocycle`;
  $("name").textContent = title;
  const facts = [algorithm.replace("_", " "), `${dimension} dimension${dimension > 1 ? "s" : ""}`, `${labels.length} labels`];
  if (curvature !== 1) facts.push(`curvature −${curvature}`);
  if (typeof budget === "number") facts.push(`budget ${budget.toPrecision(3)}`);
  $("kind").textContent = facts.join(" · ");
  pill();
}

function pill() {
  const shown = connection && connection !== "live" ? connection : status;
  const wanted = session.reference?.learn?.warmup;
  const text = {
    warming: wanted ? `warming: ${count(Math.min(newest.observed, wanted))} of ${count(wanted)}` : "warming",
    replaying: `replaying ${percent(session.progress ?? 0, 0)}`,
    reconnecting: "reconnecting…",
  }[shown];
  $("state").className = `pill ${shown}`;
  if ($("state").textContent !== (text ?? shown)) $("state").textContent = text ?? shown;
}

function legend() {
  const counts = new Map();
  for (const row of scene.points.rows) counts.set(row.label, (counts.get(row.label) ?? 0) + 1);
  $("legend").replaceChildren(...session.labels.map((label, k) => element("span", { role: "listitem", title: String(label) },
    markOf(k), element("span", { text: String(label) }), element("small", { text: count(counts.get(k) ?? 0) }))));
}

let lastTold = 0, telling = null;
/** What is drawn, in words; and the legend */
function tell() {
  telling ??= setTimeout(() => {
    telling = null;
    lastTold = performance.now();
    legend();
    const drawn = scene.points.rows.filter((row) => scene.until === null || row.position < scene.until).length;
    const parts = [scene.said(), scene.frame.note ?? "", boundary()];
    if (newest.observed > drawn && scene.until === null) parts.push(`Drawn: the newest ${count(drawn)} of ${count(newest.observed)} points.`);
    $("told").textContent = parts.filter(Boolean).join(" ");
    $("disk").setAttribute("aria-label", `${count(drawn)} points of ${session.labels.length} classes. ${parts.filter(Boolean).join(" ")}`);
    $("reference").hidden = !scene.references().length;
  }, performance.now() - lastTold > 300 ? 0 : 300);
}

function boundary() {
  const drawn = scene.drawn(), { boundary: found, threshold, kind } = drawn;
  if (threshold) return "The line is the strategic threshold, straight in the tangent space at the reference point; dotted, the geodesic through it. Where it is hatched no rational agent is seen.";
  if (found) return `The boundary is a ${found.name}${drawn.bands.length ? "; dotted, its margin" : ""}.`;
  return kind === "many" ? "Each tint is the class that a point there would get." : "";
}

// --------------------------------------------------------------------------------------------------- hover, slider

let asking = 0;
async function onHover(row, at) {
  const tip = $("tip"), mine = ++asking;
  tip.hidden = !row;
  if (!row) return;
  const label = session.labels[row.label], facts = element("dl");
  const fact = (name, value, cls = "") => facts.append(element("dt", { text: name }), element("dd", { text: value, class: cls }));
  const x = row.x.map((each) => each / scene.root);
  fact("position", count(row.position));
  fact("x", `(${x.slice(0, 3).map((each) => each.toFixed(4)).join(", ")}${x.length > 3 ? ", …" : ""})`);
  if (row.truth) fact("was at", `(${row.truth.slice(0, 3).map((each) => (each / scene.root).toFixed(4)).join(", ")})`);
  if (row.predicted !== undefined && row.predicted !== row.label) fact("was called", String(session.labels[row.predicted]), "wrong");
  tip.replaceChildren(element("b", {}, markOf(row.label), String(label)), facts);
  const box = disk.painter.side, right = at[0] > box / 2;
  tip.style.setProperty("left", right ? "auto" : `${at[0] + 16}px`);
  tip.style.setProperty("right", right ? `${box - at[0] + 16}px` : "auto");
  tip.style.setProperty("top", `${Math.min(at[1] + 10, box - 150)}px`);
  try {
    const answer = await get(`${base}/predict?x=${x.join(",")}`);
    if (mine !== asking) return;
    const scores = [answer.scores[0]].flat(), k = index.get(answer.predictions[0]);
    fact("now called", String(answer.predictions[0]), k === row.label ? "" : "wrong");
    fact("score", scores.length > 1 ? `${scores[k].toFixed(4)}` : scores[0].toFixed(4));
    const chances = answer.probabilities?.[0];
    if (chances) {
      const best = chances.map((each, j) => [each, j]).sort((a, b) => b[0] - a[0]).slice(0, 3);
      for (const [chance, j] of best) fact(`P(${session.labels[j]})`, percent(chance));
    }
  } catch (error) {
    if (!(error instanceof Problem || error instanceof TypeError)) throw error;
  }
}

function slider() {
  const past = $("past"), live = scene.until === null;
  past.max = newest.observed;
  past.min = Math.max(Number(past.dataset.first ?? 0), newest.observed - session.keep_points, 0);
  if (live) past.value = newest.observed;
  $("position").textContent = live ? `after all ${count(newest.observed)} points` : `after ${count(scene.until)} of ${count(newest.observed)}`;
  $("now").disabled = live;
}

const loadPast = throttled(async () => {
  const position = scene.until;
  if (position === null) return;
  try {
    const model = await get(`${base}/at/${position}/model`);
    if (scene.until !== position) return;
    scene.setModel(model);
    disk.touch("ground", "marks", "lines");
    tell();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.members.first >= 0) $("past").dataset.first = error.members.first;
    $("position").textContent = error.message;
  }
}, 60);

function toPast(position) {
  scene.until = position >= newest.observed ? null : position;
  slider();
  disk.touch("marks", "lines");
  if (scene.until === null) loadModel();
  else loadPast();
}

// ------------------------------------------------------------------------------------------------------------ fits

function showFits() {
  const drawable = session.dimension === 2 && session.labels.length === 2;
  listed($("fits"), fits, { base, shown: shownFit, drawable, draw: drawFit, failed: fitFailed });
}

async function drawFit(fit) {
  shownFit = fit?.id ?? null;
  scene.fit = fit ? await overlay(base, fit, session, scene.points.rows) : null;
  disk.touch("lines");
  showFits();
}

function fitFailed(error) {
  if (!(error instanceof Problem)) throw error;
  $("fits").prepend(element("p", { class: "said", role: "alert", text: error.message }));
}

// ----------------------------------------------------------------------------------------------------------- begin

function fail(error) {
  $("session").hidden = true;
  const place = $("failure");
  place.hidden = false;
  place.replaceChildren(element("h1", { text: error.title ?? "The service does not answer" }), element("p", { text: error.message }),
    element("p", {}, ...(error.type ? [element("a", { href: error.type, text: "What this means" }), " · "] : []), element("a", { href: "/", text: "All sessions" })));
}

function listen() {
  $("centre").onclick = () => disk.look([0, 0]);
  $("reference").onclick = () => disk.home();
  $("nearer").onclick = () => disk.nearer(0.25);
  $("farther").onclick = () => disk.nearer(-0.25);
  $("past").oninput = (event) => toPast(Number(event.target.value));
  $("now").onclick = () => toPast(newest.observed);
  $("fit").onclick = async () => {
    try {
      await post(`${base}/fits`, {});
      loadFits();
    } catch (error) {
      fitFailed(error);
    }
  };
  onScheme(() => (plot(), legend()));
  addEventListener("resize", plot);
}

function links() {
  const parts = document.querySelectorAll(".side .twins");
  ["metrics", "certificate", "fits"].forEach((name, i) => parts[i].append(twin(`${base}/${name}`)));
  $("twins").append(twin(base, "session"), twin(`${base}/model`, "model"), twin(`${base}/disk.svg`, "disk.svg"));
}

async function begin() {
  session = await get(base);
  status = session.status;
  index = new Map(session.labels.map((label, k) => [label, k]));
  history = new History();
  scene = new Scene(session);
  scene.points.most = Math.max(100, Math.min(scene.points.most, POINTS, Math.floor(NUMBERS / session.dimension)));
  $("session").hidden = false;
  disk = new Disk($("disk"), scene, onHover);
  charts = {
    accuracy: new Chart($("c1"), { format: (y) => percent(y, 0), range: (ys) => [Math.max(0, Math.min(...ys, 0.9) - 0.05), 1] }),
    updates: new Chart($("c2"), { log: true }),
    rate: new Chart($("c4"), { range: (ys) => [0, Math.max(10, ...ys) * 1.1], along: (t) => (t ? `${t}\u202fs` : "now") }),
  };
  Object.assign(newest, { observed: session.observed, mistakes: session.mistakes, updates: session.updates });
  begun = session.observed;
  heading();
  listen();
  links();
  const replayed = session.observed > 0 && session.keep_points <= POINTS * 4 && session.dimension <= 16;
  const [found] = await Promise.all([get(`${base}/metrics`), replayed ? null : fill(), loadModel()]);
  metrics = found;
  if (!replayed) history.begin(metrics);
  members();
  numbers();
  plot();
  slider();
  loadMetrics();
  loadFits();
  follow(`${base}/events`, onEvent, (now) => {
    if (now instanceof Problem) return fail(now);
    connection = now;
    pill();
  }, replayed ? "0-0" : null);
  let before = newest.observed, at = performance.now();
  setInterval(() => {
    const now = performance.now(), rate = ((newest.observed - before) * 1000) / (now - at);
    [before, at] = [newest.observed, now];
    history.rate(now / 1000, Math.max(0, rate));
    $("speed").textContent = rate >= 1 ? count(rate) : "";
    charts.rate.draw({ from: -60, series: [{ points: history.rates.map(([t, n]) => [t - now / 1000, n]), colour: scheme().line }] });
  }, 1000);
  globalThis.horocycle = { scene, disk, history, newest, call, get state() { return connection; }, get quiet() { return underway === 0; } };
}

begin().catch((error) => {
  fail(error);
  if (!(error instanceof Problem || error instanceof TypeError)) throw error;
});
