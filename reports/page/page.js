// What a page of reports.document does: draws charts when they come near, opens packed folds, and
// keeps what the reader chose (convention, filters, one run) the same everywhere and in the address.
(() => {
"use strict";

const DEFAULTS = {attention: "exact", peak: "own", model: "", accelerator: "", selected: ""};
const KNOWN = {attention: ["exact", "full"], peak: ["own", "bf16"]};
const NEAR = "400px"; // a chart is drawn when it is so near to what is seen
const NARROW = 700; // below this many pixels panels stand one below the other
const LEAST = 80; // pixels below which no panel shrinks
const BESIDE = 84; // pixels that axes take beside a panel, until it has been measured
const STILL = 12; // frames without a move after which a place has been reached

const root = document.documentElement;
const controls = document.querySelector(".controls");
const state = {...DEFAULTS};
const all = (selector, within = document) => within.querySelectorAll(selector);

// --- what the reader chose --------------------------------------------------------------------

function change(chosen) {
  Object.assign(state, chosen);
  show();
  remember();
}

function show() {
  root.dataset.attention = state.attention;
  root.dataset.peak = state.peak;
  for (const control of controls ? all("input, select", controls) : []) {
    if (control.type === "radio") control.checked = control.value === state[control.name];
    else control.value = state[control.name];
  }
  mark(document);
  for (const drawn of views.values()) tell(drawn);
  for (const head of all(".sortable [aria-sort]")) sort(head);
  say();
}

const fits = ({model, accelerator}) =>
  (!state.model || state.model === model) &&
  (!state.accelerator || state.accelerator === accelerator);

/** Hides the runs that the filters leave out, and marks the selected one. */
function mark(within) {
  for (const part of all("[data-runs], [data-holds]", within)) {
    const runs = runsOf(part);
    const fitting = runs.filter(runFits).length;
    part.classList.toggle("filtered", runs.length > 0 && !fitting);
    const words = part.querySelector(":scope > summary .fitting");
    if (words) words.textContent = fitting === runs.length ? "" : ` \u00b7 ${fitting} match the filters`;
  }
  for (const element of all("[data-run]", within)) {
    const {run, model} = element.dataset;
    const selected = run === state.selected;
    if (element.matches("button.pick")) {
      element.setAttribute("aria-pressed", selected);
    } else {
      element.classList.toggle("selected", selected);
      element.classList.toggle("filtered", model !== undefined && !fits(element.dataset));
    }
  }
}

/** The runs that a part of the page is about. */
const runsOf = ({dataset}) => (dataset.runs ?? dataset.holds).split(" ").filter(Boolean);

/** Model and accelerator of each run, also of those in packed folds. */
const subjects = new Map();
for (const {dataset} of all("[data-run][data-model]")) subjects.set(dataset.run, dataset);
for (const [model, accelerator, runs] of JSON.parse(controls?.dataset.subjects ?? "[]")) {
  for (const run of runs.split(" ")) subjects.set(run, {model, accelerator});
}
const runFits = (run) => fits(subjects.get(run) ?? {});

function say() {
  if (!controls) return;
  const [shown, total] = [[...subjects.keys()].filter(runFits).length, subjects.size];
  const runs = total === 1 ? "run" : "runs";
  const words = [];
  if (total) words.push(total === 1 && shown ? "One run." : shown === total ? `All ${total} ${runs} shown.` : `${shown} of ${total} ${runs} shown.`);
  if (state.selected) words.push(`Selected: ${nameOf(state.selected)}.`);
  const line = controls.querySelector(".status");
  if (line.textContent !== words.join(" ")) line.textContent = words.join(" ");
  controls.querySelector(".chosen").hidden = !state.selected;
}

const about = (run) => [...all("[data-run]")].filter((element) => element.dataset.run === run);

const holder = (run) =>
  [...all("[data-holds]")].find(({dataset}) => dataset.holds.split(" ").includes(run));
const known = (run) => run && (about(run).length || holder(run));

function nameOf(run) {
  if (labels.has(run)) return labels.get(run);
  const named = about(run).map((element) => element.querySelector(".name")).find(Boolean);
  return named?.textContent.replace("\u25cf\u00a0", "") ?? run;
}
const labels = new Map(); // of runs that were clicked in a chart

const select = (run) => change({selected: state.selected === run ? "" : run});

/** Writes the choices into the address, so that a link keeps them. */
function remember(at = "") {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== DEFAULTS[name]) kept.set(name === "selected" ? "run" : name, value);
  }
  const chosen = kept.size ?? [...kept].length;
  if (at) kept.set("at", at);
  const fragment = chosen ? kept.toString() : encodeURIComponent(at);
  const address = location.href.split("#")[0] + (fragment && `#${fragment}`);
  if (address === location.href) return;
  try {
    history.replaceState(null, "", address);
  } catch {
    // a page inside another has no address of its own
  }
}

/** Takes the choices from the address, or opens the place that it names. */
function recall() {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) return reveal(decoded(hash));
  const kept = new URLSearchParams(hash);
  const chosen = {...DEFAULTS};
  for (const name of Object.keys(KNOWN)) {
    if (KNOWN[name].includes(kept.get(name))) chosen[name] = kept.get(name);
  }
  for (const choice of controls ? all("select", controls) : []) {
    const value = kept.get(choice.name) ?? "";
    if ([...choice.options].some((option) => option.value === value)) chosen[choice.name] = value;
  }
  if (known(kept.get("run"))) chosen.selected = kept.get("run");
  Object.assign(state, chosen);
  show();
  return kept.get("at") ? reveal(kept.get("at")) : undefined;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Opens what holds the element of that id, and goes there. */
async function reveal(id) {
  const found = document.getElementById(id) ?? (await unearth(id));
  if (!found) return;
  for (let fold = found.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    fold.open = true;
  }
  await unpack(found.closest("details"));
  if (found.closest(".filtered")) change({model: "", accelerator: ""}); // else it can't be seen
  found.querySelector(":scope > summary")?.focus({preventScroll: true});
  remember(id);
  await land(found);
}

let goal; // where the page is going to, until the reader goes elsewhere

/** Goes to an element, and stays there while what is above takes its size. */
async function land(found) {
  goal = found;
  let last;
  for (let still = 0; goal === found && still < STILL;) {
    clear();
    found.scrollIntoView();
    await new Promise(requestAnimationFrame);
    const {top} = found.getBoundingClientRect();
    const moves = top !== last || busy || waiting.size || document.readyState !== "complete";
    still = moves ? 0 : still + 1;
    last = top;
  }
  if (goal === found) goal = undefined;
}

/** The element of that id in a fold that is still packed. */
async function unearth(id) {
  if (!/^[\w.-]+$/.test(id)) return null;
  const told = holder(id.replace(/^run-/, ""));
  for (const fold of told ? [told] : all("details[data-packed]")) {
    const body = fold.dataset.packed ? await bodyOf(fold).catch(() => "") : "";
    if (!body.includes(` id="${id}"`)) continue;
    await unpack(fold);
    break;
  }
  return document.getElementById(id);
}

// --- folds ------------------------------------------------------------------------------------

const packs = new Map();

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64); // not in browsers before 2025
  const text = atob(base64);
  const bytes = new Uint8Array(text.length); // Uint8Array.from takes ten times as long
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function unzipped(base64) {
  if (!("DecompressionStream" in window)) {
    throw new Error("this browser is too old to unpack it (no DecompressionStream). Use a newer browser");
  }
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function bodyOf(fold) {
  const [pack, place] = fold.dataset.packed.split(".").map(Number);
  if (!packs.has(pack)) {
    packs.set(pack, unzipped(all("script.pack")[pack].textContent).then(JSON.parse));
  }
  return (await packs.get(pack))[place];
}

/** Puts a fold's body in its place, once. */
async function unpack(fold) {
  if (!fold?.dataset.packed) return;
  const body = bodyOf(fold);
  delete fold.dataset.packed;
  fold.ariaBusy = "true";
  try {
    fold.insertAdjacentHTML("beforeend", await body);
    mark(fold);
    arrange(fold);
    look(fold);
  } catch (error) {
    fold.append(warning(`This section could not be opened: ${error.message}.`));
  }
  fold.ariaBusy = null;
}

function warning(text) {
  const line = document.createElement("p");
  line.className = "warning";
  line.textContent = text;
  return line;
}

// --- tables that can be sorted and searched -----------------------------------------------------

const texts = new Intl.Collator("en", {numeric: true});

/** Gives tables a search, and their headings buttons; without a script they are plain tables. */
function arrange(within) {
  for (const table of all("table.sortable", within)) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => turn(head));
      head.append(button);
    }
    const [line, label, input, found] = ["p", "label", "input", "output"].map((name) => document.createElement(name));
    line.className = "find screen";
    input.type = "search";
    input.autocomplete = "off";
    input.addEventListener("input", () => find(table, input.value, found));
    label.append("Search all columns ", input);
    line.append(label, found);
    table.closest(".scroll").before(line);
  }
}

/** Sorts by a column, or the other way; figures begin with the largest. */
function turn(head) {
  const falls = head.ariaSort ? head.ariaSort === "ascending" : head.matches(".number");
  for (const other of head.parentElement.cells) other.ariaSort = null;
  head.ariaSort = falls ? "descending" : "ascending";
  sort(head);
}

/** Puts the rows in the order that a heading says; what is unknown comes last. */
function sort(head) {
  const body = head.closest("table").tBodies[0];
  const numeric = head.matches(".number");
  const sign = head.ariaSort === "descending" ? -1 : 1;
  const keyed = [...body.rows].map((row) => [keyOf(row.cells[head.cellIndex], numeric), row]);
  keyed.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (numeric ? a - b : texts.compare(a, b));
  });
  body.append(...keyed.map(([, row]) => row));
}

/** A cell's value: of the chosen convention where it has several, "" where it is unknown. */
function keyOf({dataset, textContent}, numeric) {
  if (dataset.sort === undefined) return textContent.trim();
  const chosen = `${state.attention}_${state.peak}:`;
  const parts = dataset.sort.split(" ");
  const value = parts.length > 1 ? parts.find((part) => part.startsWith(chosen))?.slice(chosen.length) : parts[0];
  return numeric && value ? Number(value) : value ?? "";
}

/** Hides the rows that lack one of the words. */
function find(table, text, found) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...table.tBodies[0].rows];
  const fitting = rows.filter((row) => {
    const held = row.textContent.toLowerCase();
    const fit = words.every((word) => held.includes(word));
    row.classList.toggle("unfound", !fit);
    return fit;
  });
  found.textContent = words.length ? `${fitting.length} of ${rows.length} rows` : "";
}

// --- charts -----------------------------------------------------------------------------------

const views = new Map();
const waiting = new Set();
const theme = JSON.parse(document.getElementById("theme")?.textContent ?? "{}");
const specs = new Map([...all("script.spec")].map((held) => [held.dataset.kind, held.textContent]));
let busy = false;
let loading;

/** The library; on a large page it is packed, and runs only if it is the one of the policy. */
function library() {
  const held = document.querySelector("script.library");
  if (window.vegaEmbed || !held) return undefined;
  loading ??= unzipped(held.textContent).then((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.body.append(script);
  });
  return loading;
}

const inView = new IntersectionObserver((seen) => {
  for (const {target, isIntersecting} of seen) {
    if (!isIntersecting) waiting.delete(target);
    else if (target.matches("figure")) waiting.add(target);
    else reachable(target);
  }
  next();
}, {rootMargin: NEAR});

/** Draws what waits, one chart in each frame, so that the page stays quick. */
function next() {
  if (busy || !waiting.size) return;
  busy = true;
  requestAnimationFrame(async () => {
    const [figure] = waiting; // none where it has left the view since
    waiting.delete(figure);
    if (figure) await draw(figure);
    busy = false;
    next();
  });
}

async function draw(figure) {
  if (views.has(figure)) return;
  inView.unobserve(figure);
  views.set(figure, {});
  try {
    const pending = library();
    if (pending) await pending; // only then: while it prints, nothing can be waited for
    await fit(figure);
  } catch (error) {
    console.error(error);
    figure.querySelector(".chart").replaceChildren(warning(`No chart: ${error.message}.`));
  }
}

/** Draws a chart no wider than its place: shrinks it by what it was too wide, or stacks it. */
async function fit(figure) {
  const chart = figure.querySelector(".chart");
  const wide = chart.clientWidth || NARROW;
  const place = document.createElement("div");
  chart.replaceChildren(place);
  const plan = {wide, stacked: wide < NARROW, cut: 0};
  for (let turn = 0; turn < 4; turn++) {
    const spec = specOf(figure, plan);
    const made = await vegaEmbed(place, spec, OPTIONS(wide));
    const drawn = {...plan, made, names: names(spec)};
    views.set(figure, drawn);
    const over = (place.querySelector("svg")?.width.baseVal.value ?? 0) - wide;
    if (over <= 1 || plan.stuck) break;
    shrink(plan, over, spec);
    made.finalize();
  }
  const drawn = views.get(figure);
  tell(drawn);
  drawn.made.view.addEventListener("click", (_, item) => {
    const {run_id: run, run: label} = item?.datum ?? {};
    if (!run) return;
    if (label) labels.set(run, label);
    select(run);
  });
}

function shrink(plan, over, spec) {
  const panels = spec.hconcat?.length ?? 1;
  const widths = sized(spec).map((part) => part.width);
  const cut = (2 * over) / panels; // its axes need not shrink with it, and each try costs a drawing
  if (Math.min(...widths) - cut >= LEAST) plan.cut += cut;
  else if (spec.hconcat) Object.assign(plan, {stacked: true, cut: 0});
  else Object.assign(plan, {cut: plan.cut + Math.max(0, Math.max(...widths) - LEAST), stuck: true});
}

const OPTIONS = (wide) => ({
  mode: "vega-lite",
  renderer: "svg",
  actions: false,
  ast: true, // interpreted: the content policy forbids eval
  config: wide < NARROW ? {...theme, axis: {...theme.axis, labelLimit: limit(wide)}} : theme,
  tooltip: {theme: "page"},
});
const limit = (wide) => Math.max(60, Math.round(0.3 * wide));

/** The views of a spec that have a width of their own. */
const sized = (spec) =>
  [spec, ...(spec.hconcat ?? []), ...(spec.vconcat ?? []), ...(spec.concat ?? [])]
    .map((part) => (part.spec && !part.width ? part.spec : part))
    .filter((part) => typeof part.width === "number");

const names = (spec) => (spec.params ?? []).map((param) => param.name).filter((name) => name in state);

/** A chart's spec with its data, for a place as wide as the plan says. */
function specOf(figure, {wide, stacked, cut}) {
  const {kind} = figure.dataset;
  const own = JSON.parse(figure.querySelector("script").textContent);
  const spec = kind ? JSON.parse(specs.get(kind)) : own;
  if (kind) {
    spec.datasets = {};
    for (const [name, held] of Object.entries(own.datasets)) spec.datasets[name] = rows(held);
    spec.description = figure.getAttribute("aria-label");
  }
  for (const param of spec.params ?? []) {
    if (param.name === "narrow") param.value = stacked;
    else if (param.name in state) param.value = state[param.name];
    else if (param.name in (own.params ?? {})) param.value = own.params[param.name];
  }
  if (spec.hconcat && stacked) stack(spec);
  const room = wide - BESIDE;
  for (const part of sized(spec)) part.width = Math.max(LEAST, Math.min(part.width, room) - cut);
  if (wide < NARROW) each(spec, (node) => {
    if (node.labelLimit > limit(wide)) node.labelLimit = limit(wide);
    if (node.title?.frame === "group") node.title.frame = "bounds"; // begins above the labels
  });
  return spec;
}

/** The rows of a set of data, which mostly is held by column. */
function rows(held) {
  if (Array.isArray(held)) return held;
  const columns = Object.entries(held);
  return columns[0][1].map((_, n) => Object.fromEntries(columns.map(([name, of]) => [name, of[n]])));
}

/** Panels below one another, each with the names of its rows. */
function stack(spec) {
  spec.vconcat = spec.hconcat;
  delete spec.hconcat;
  each(spec.vconcat, (node) => {
    if (node.y?.axis?.labels === false) node.y.axis.labels = true;
  });
}

function each(node, act) {
  if (!node || typeof node !== "object") return;
  act(node);
  for (const [name, part] of Object.entries(node)) if (name !== "datasets") each(part, act);
}

/** Gives a drawn chart what the reader chose. */
function tell({made, names: known = []}) {
  const news = known.filter((name) => made.view.signal(name) !== state[name]);
  for (const name of news) made.view.signal(name, state[name]);
  if (news.length) made.view.runAsync();
}

/** A table that is larger than its place can be scrolled from the keyboard. */
function reachable(box) {
  const wider = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
  box.toggleAttribute("tabindex", wider);
  if (!wider) return;
  box.tabIndex = 0;
  box.role = "region";
  box.ariaLabel = box.querySelector("caption")?.firstChild?.textContent ?? "table";
}

/** Places that are gone to stay clear of the bar that stands at the top. */
function clear() {
  const bar = controls?.closest("body > *");
  const stands = bar && getComputedStyle(bar).position === "sticky";
  root.style.scrollPaddingTop = stands ? `${bar.offsetHeight + 8}px` : "";
}

function look(within) {
  for (const part of all("figure[aria-label], .scroll", within)) inView.observe(part);
}

/** A chart whose place has become another is drawn again when it is near. */
function refit() {
  for (const [figure, {made, wide, stacked, cut}] of views) {
    const now = figure.querySelector(".chart").clientWidth;
    if (!made || !now || now === wide || (now > wide && !stacked && !cut && wide >= NARROW)) continue;
    made.finalize();
    views.delete(figure);
    inView.observe(figure);
  }
}

// --- the reader ---------------------------------------------------------------------------------

document.addEventListener("toggle", ({target}) => {
  if (target.open) unpack(target);
}, true);
document.addEventListener("change", ({target}) => {
  if (controls?.contains(target) && target.name in state) change({[target.name]: target.value});
});
document.addEventListener("click", ({target}) => {
  const place = target.closest?.("a[href^='#']")?.hash;
  if (place && place === location.hash) reveal(decoded(place.slice(1))); // no hashchange then
  const button = target.closest?.("button");
  if (button?.matches(".pick")) select(button.dataset.run);
  else if (button?.matches(".clear")) change({selected: ""});
  else if (button?.matches(".details")) reveal(`run-${state.selected}`);
});
document.addEventListener("keydown", ({key, target}) => {
  if (key === "Escape" && state.selected && !target.matches("select")) change({selected: ""});
});
for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
  addEventListener(kind, () => { goal = undefined; }, {passive: true, capture: true});
}
addEventListener("hashchange", recall);
addEventListener("beforeprint", () => {
  for (const fold of all("details:not([open], [data-packed])")) {
    fold.open = true;
    fold.dataset.closed = ""; // on the screen
  }
  for (const figure of all("figure[aria-label]")) if (!figure.closest("details:not([open])")) draw(figure);
});
addEventListener("afterprint", () => {
  for (const fold of all("details[data-closed]")) {
    fold.open = false;
    delete fold.dataset.closed;
  }
});
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    refit();
    clear();
  }, 200);
});
library()?.catch(console.error);
arrange(document);
show();
recall();
addEventListener("load", () => {
  clear();
  look(document);
});
})();
