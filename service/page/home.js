/* GET /: the sessions, each with a small disk of its own; demos; a form to open one. */

import { Problem, get, post } from "./api.js";
import { value } from "./ball.js";
import { spark } from "./charts.js";
import { Disk } from "./disk.js";
import { count, curl, element, percent, plural, twin } from "./html.js";
import { isDark } from "./palette.js";
import { Scene } from "./scene.js";

const PAGE = 24, POINTS = 200, PAUSE = 2000, REMEMBERED = 60;
const polar = (r, angle) => [Math.tanh(r / 2) * Math.cos(angle), Math.tanh(r / 2) * Math.sin(angle)];
const $ = (name) => document.getElementById(name);
const cards = new Map();
let cursor = null, wanted = PAGE;

/** Only the cards that are on the screen ask for more than the list has */
const looking = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const card = [...cards.values()].find((each) => each.root === target);
    if (card) card.onScreen = isIntersecting;
    if (isIntersecting) card?.show();
  }
}, { rootMargin: "200px" });

class Card {
  constructor(session) {
    this.base = `/sessions/${encodeURIComponent(session.id)}`;
    this.disk = element("div", { class: "disk", "aria-hidden": "true" });
    this.title = element("h3");
    this.state = element("span", { class: "pill", hidden: "" });
    this.kind = element("p");
    this.figures = element("p", { class: "figures" });
    this.spark = element("canvas", { class: "spark", "aria-hidden": "true" });
    this.hint = element("p", { class: "hint", hidden: "" });
    this.root = element("a", { class: "card panel", href: `${this.base}/live` }, this.disk, element("div", { class: "named" }, this.title, this.state), this.kind, this.figures, this.spark, this.hint);
    this.seen = null;
    this.accuracies = [];
    looking.observe(this.root);
  }

  /** What the list of sessions says already */
  tell(session) {
    this.session = session;
    this.title.textContent = session.name || session.id;
    this.state.hidden = session.status === "live";
    this.state.className = `pill ${session.status}`;
    this.state.textContent = session.status;
    this.kind.textContent = [session.algorithm.replace("_", " "), `d = ${session.dimension}`, `${session.labels.length} labels`].join(" · ");
    const accuracy = session.observed ? 1 - session.mistakes / session.observed : null;
    this.figures.textContent = session.observed ? `${plural(session.observed, "point")}, ${percent(accuracy)} right` : "no points yet";
  }

  /** And what has to be asked for */
  async show() {
    const { session } = this;
    if (!this.onScreen || this.busy || (this.seen === session.observed && this.version === session.version)) return;
    this.busy = true;
    try {
      await this.ask(session);
    } catch (error) {
      if (!(error instanceof TypeError)) absent(error); // it was ended meanwhile, or the service was
    }
    this.busy = false;
  }

  async ask(session) {
    const from = Math.max(0, session.observed - POINTS);
    const [model, log, metrics] = await Promise.all([
      get(`${this.base}/model`),
      session.observed && session.keep_points ? get(`${this.base}/log?from=${from}&limit=${POINTS}`).catch(absent) : null,
      get(`${this.base}/metrics`),
    ]);
    [this.seen, this.version] = [session.observed, session.version];
    this.draw(session, model, log);
    this.hint.hidden = !metrics.hints?.length;
    this.hint.textContent = metrics.hints?.[0] ?? "";
    const blocks = metrics.log.mistakes.slice(-REMEMBERED).map((each) => 1 - each / metrics.log.block);
    if (metrics.window.accuracy !== null) this.accuracies = [...this.accuracies, metrics.window.accuracy].slice(-REMEMBERED);
    spark(this.spark, [...blocks, ...this.accuracies].slice(-REMEMBERED), isDark() ? "#6cbdf2" : "#005a92");
  }

  draw(session, model, log) {
    if (!this.scene) {
      this.scene = new Scene(session);
      this.painted = new Disk(this.disk, this.scene, () => {}, { small: true });
    }
    const index = new Map(session.labels.map((label, k) => [label, k]));
    this.scene.points.clear();
    this.scene.push((log?.points ?? []).map((x, i) => ({ position: log.from + i, x: this.scene.unit(x), label: index.get(log.labels[i]) })));
    this.scene.setModel(model);
    this.painted.touch("ground", "marks", "lines");
  }
}

const absent = (error) => {
  if (error instanceof Problem) return null;
  throw error;
};

async function refresh() {
  const found = [];
  cursor = null;
  do {
    const page = await get(`/sessions?limit=${Math.min(wanted - found.length, 100)}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    found.push(...page.sessions);
    cursor = page.cursor;
  } while (cursor && found.length < wanted);
  $("loading").hidden = true;
  $("none").hidden = found.length > 0;
  $("more").hidden = !cursor;
  $("total").textContent = found.length ? `${count(found.length)}${cursor ? ", and more" : ""}` : "";
  for (const [id, card] of cards) {
    if (!found.some((session) => session.id === id)) {
      card.root.remove();
      cards.delete(id);
    }
  }
  found.forEach((session, i) => {
    if (!cards.has(session.id)) cards.set(session.id, new Card(session));
    const { root } = cards.get(session.id);
    cards.get(session.id).tell(session);
    if ($("sessions").children[i] !== root) $("sessions").insertBefore(root, $("sessions").children[i] ?? null);
  });
  for (const session of found) await cards.get(session.id)?.show();
}

async function watch() {
  for (;;) {
    try {
      await refresh();
      $("said").textContent = "";
    } catch (error) {
      $("loading").hidden = true;
      $("said").textContent = error instanceof Problem ? error.message : "The service does not answer; trying again.";
      if (!(error instanceof Problem || error instanceof TypeError)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, document.hidden ? 5 * PAUSE : PAUSE));
  }
}

/** To a session's page; margin: that its points are known to have */
const leave = (session, margin) => location.assign(`/sessions/${encodeURIComponent(session.id)}/live${margin ? `#margin=${margin}` : ""}`);

async function demos() {
  const { demos: found } = await get("/demo");
  $("demos").hidden = false;
  $("demos").querySelector(".choices").replaceChildren(...found.map((demo) => {
    const button = element("button", { type: "button" }, element("b", { text: demo.title }), element("span", { text: demo.about }));
    button.dataset.kind = demo.kind;
    button.onclick = async () => {
      button.disabled = true;
      try {
        leave(await post("/demo", { kind: demo.kind, seed: Math.floor(Math.random() * 2 ** 31) }), demo.margin);
      } catch (error) {
        $("said").textContent = absent(error) ?? error.message;
        button.disabled = false;
      }
    };
    return button;
  }));
}

/** Labels are integers where all are; −1 and 1 by default */
function labelled(text) {
  const parts = text.split(",").map((each) => each.trim()).filter(Boolean);
  return parts.every((each) => /^-?\d{1,15}$/.test(each)) ? parts.map(Number) : parts;
}

function form() {
  const place = $("opening");
  $("open").onclick = () => {
    place.hidden = !place.hidden;
    $("open").setAttribute("aria-expanded", String(!place.hidden));
    if (!place.hidden) place.querySelector("input").focus();
  };
  place.onsubmit = async (event) => {
    event.preventDefault();
    const given = new FormData(place), asked = { dimension: Number(given.get("dimension")) };
    if (given.get("id")) asked.id = given.get("id");
    if (given.get("algorithm")) asked.algorithm = given.get("algorithm");
    if (given.get("reference")) asked.reference = given.get("reference") === "learn" ? { learn: {} } : given.get("reference");
    if (given.get("labels").trim()) asked.labels = labelled(given.get("labels"));
    try {
      leave(await post("/sessions", asked));
    } catch (error) {
      place.querySelector(".said").textContent = absent(error) ?? error.message;
    }
  };
}

/** The algorithms that this service has, from its own description */
async function algorithms() {
  const document_ = await get("/openapi.json");
  const { algorithm } = document_.components.schemas.OpenSession.properties;
  for (const name of algorithm.enum ?? algorithm.anyOf?.flatMap((each) => each.enum ?? []) ?? []) $("opening").elements.algorithm.append(element("option", { text: name }));
}

/** A horocycle over the tiling, and some points that it parts, seen from somewhere else all the time; at rest for those who
    want no motion */
function ornament() {
  const scene = new Scene({ curvature: 1, dimension: 2, labels: [0, 1], keep_points: 0 }), host = $("ornament");
  scene.setModel({ curvature: 1, labels: [0, 1], features: "hemisphere", reference: null, weights: [-1, 0.6, -0.8, 0.55] });
  const [q] = scene.classifier.forms;
  const spread = Array.from({ length: 150 }, (_, i) => polar(2.9 * Math.sqrt((i + 0.5) / 150), 2.399963 * i)); // a sunflower
  const apart = spread.filter((x) => Math.abs(value(q, ...x)) > 0.16 * (1 - x[0] * x[0] - x[1] * x[1]));
  scene.push(apart.map((x, position) => ({ position, x, label: value(q, ...x) >= 0 ? 1 : 0 })));
  const disk = new Disk(host, scene, () => {}, { ornament: true });
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const turn = (now) => {
    if (!document.hidden && host.offsetParent) disk.look([0.42 * Math.cos(now / 9000), 0.3 * Math.sin(now / 6000)]);
    if (!still.matches) setTimeout(() => requestAnimationFrame(turn), 40);
  };
  turn(3000);
}

ornament();
$("twin").append(twin("/sessions"));
$("first").append(curl("/sessions", '{"id": "mine", "dimension": 2}'));
$("more").onclick = () => {
  wanted += PAGE;
  refresh();
};
form();
demos().catch(absent);
algorithms().catch(absent);
watch();
