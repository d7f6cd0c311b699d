/* GET /sessions/{id}/live: a session's disk as it learns. A feed keeps what is known; this page shows it. */

import { Problem, call, get } from "./api.js";
import { Disk } from "./disk.js";
import { Feed } from "./feed.js";
import { Figures } from "./figures.js";
import { Fits } from "./fits.js";
import { element, twin } from "./html.js";
import { onScheme } from "./palette.js";
import { Past } from "./past.js";
import { quiet } from "./throttle.js";
import { Tip } from "./tip.js";
import { Words } from "./words.js";

const $ = (name) => document.getElementById(name);
const base = `/sessions/${encodeURIComponent(decodeURIComponent(location.pathname.split("/")[2]))}`;

function fail(error) {
  $("loading").hidden = $("session").hidden = true;
  const place = $("failure"), known = error instanceof Problem;
  place.hidden = false;
  place.replaceChildren(
    element("h1", { text: known ? error.title : "The service does not answer" }),
    element("p", { text: known ? error.message : "Is it running? This page tries again when you load it again." }),
    element("p", {}, ...(known && error.type ? [element("a", { href: error.type, text: "What this means" }), " · "] : []), element("a", { href: "/", text: "All sessions" })));
}

/** What a feed tells of, and who shows it */
function shower(parts) {
  const { disk, words, figures, past, fits } = parts;
  const show = {
    points: () => (disk.touch("fresh", "lines"), words.tell()),
    announced: () => disk.touch("fresh", "lines"),
    mistakes: (rows) => disk.painter.mistaken(rows, performance.now()),
    model: () => (disk.touch("ground", "lines"), words.tell()),
    counts: () => (figures.show(), past.show()),
    metrics: () => (figures.metrics(), figures.show(), disk.touch("lines")),
    session: () => words.heading(),
    fits: () => fits.load(),
    connection: () => words.state(),
  };
  return (what, rows) => (what instanceof Problem ? fail(what) : show[what](rows));
}

function listen({ disk, figures, words, fits }) {
  $("centre").onclick = () => disk.look([0, 0]);
  $("reference").onclick = () => disk.home();
  $("nearer").onclick = () => disk.nearer(0.25);
  $("farther").onclick = () => disk.nearer(-0.25);
  $("fit").onclick = () => fits.ask();
  onScheme(() => (figures.plot(), words.heading()));
  addEventListener("resize", () => figures.plot());
}

function links() {
  const parts = document.querySelectorAll(".side .twins");
  ["metrics", "certificate", "fits"].forEach((name, i) => parts[i].append(twin(`${base}/${name}`)));
  $("twins").append(twin(base, "session"), twin(`${base}/model`, "model"), twin(`${base}/disk.svg`, "disk.svg"));
}

async function begin() {
  const session = await get(base), margin = Number(new URLSearchParams(location.hash.slice(1)).get("margin"));
  let tell = () => {};
  const feed = new Feed(base, session, (...told) => tell(...told), margin > 0 ? margin : null);
  $("loading").hidden = true;
  $("session").hidden = false;
  const tip = new Tip($("tip"), feed), figures = new Figures(feed), words = new Words(feed);
  const disk = new Disk($("disk"), feed.scene, (row, at) => tip.show(row, at, disk.painter.side));
  const past = new Past(feed, () => (disk.touch("ground", "marks", "lines"), words.tell()));
  const fits = new Fits($("fits"), feed, () => disk.touch("lines"));
  const parts = { disk, words, figures, past, fits };
  tell = shower(parts);
  listen(parts);
  links();
  await feed.begin();
  past.show();
  figures.watch();
  fits.load();
  globalThis.horocycle = { feed, scene: feed.scene, disk, history: feed.history, newest: feed.newest, call, get state() { return feed.connection; }, get quiet() { return quiet(); } };
}

begin().catch((error) => {
  fail(error);
  if (!(error instanceof Problem || error instanceof TypeError)) throw error;
});
