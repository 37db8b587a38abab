// What a page of reports.document does: draws charts when they come near, opens packed folds, and
// keeps what the reader chose (convention, filters, one run) the same everywhere and in the address.
const DEFAULTS = {
  ...{attention: "exact", peak: "own", framework: "", model: "", accelerator: "", selected: ""},
  ...{sort: "", find: "", hide: "", more: ""}, // of the table of runs
  ...{compare: "", x: "steps", from: "", to: "", facts: "differing"}, // of chosen runs
};
const KNOWN = {
  ...{attention: ["exact", "full"], peak: ["own", "bf16"]},
  ...{x: ["steps", "tokens", "time"], facts: ["differing", "all"]},
};
const FREE = ["sort", "find", "hide", "more", "compare", "from", "to"]; // any text
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

/** The same for what changes no part but the section of chosen runs. */
function changeChosen(chosen) {
  Object.assign(state, chosen);
  comparing = compare();
  remember();
}

function show() {
  root.dataset.attention = state.attention;
  root.dataset.peak = state.peak;
  root.toggleAttribute("data-filtered", isFiltered());
  for (const control of controls ? all("input, select", controls) : []) {
    if (control.type === "radio") control.checked = control.value === state[control.name];
    else control.value = state[control.name];
  }
  mark(document);
  for (const drawn of views.values()) tell(drawn);
  const convention = `${state.attention}_${state.peak}`;
  if (convention !== sorted) for (const head of all(".sortable [aria-sort]")) sort(head);
  sorted = convention;
  for (const table of all("table.sortable")) shorten(table);
  say();
  comparing = compare();
}
let sorted; // the convention by which tables were sorted last
let comparing; // until the section of chosen runs is what the reader chose

const FILTERS = ["framework", "model", "accelerator"];
const isFiltered = () => FILTERS.some((name) => state[name]);
const fits = (subject) => FILTERS.every((name) => !state[name] || state[name] === subject[name]);

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
    const {run} = element.dataset;
    const selected = run === state.selected;
    if (element.matches("button.pick")) {
      element.setAttribute("aria-pressed", selected);
    } else {
      element.classList.toggle("selected", selected);
      element.classList.toggle("filtered", !runFits(run));
    }
  }
}

/** The runs that a part of the page is about. */
const runsOf = ({dataset}) => (dataset.runs ?? dataset.holds).split(" ").filter(Boolean);

/** What runs are filtered by, also of those in packed folds. */
const subjects = new Map();
for (const [framework, model, accelerator, runs] of JSON.parse(controls?.dataset.subjects ?? "[]")) {
  for (const run of runs.split(" ")) subjects.set(run, {framework, model, accelerator});
}
const runFits = (run) => !subjects.has(run) || fits(subjects.get(run));

function say() {
  if (!controls) return;
  const [shown, total] = [[...subjects.keys()].filter(runFits).length, subjects.size];
  const runs = total === 1 ? "run" : "runs";
  const words = [];
  if (isFiltered()) words.push(`${shown} of ${total} ${runs} pass the filters.`);
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

/** The same for what changes with each key. */
function remembered() {
  clearTimeout(later);
  later = setTimeout(remember, 300);
}
let later;

/** Takes the choices from the address, or opens the place that it names. */
function recall() {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) return reveal(decoded(hash));
  const kept = new URLSearchParams(hash);
  const chosen = {...DEFAULTS};
  for (const name of Object.keys(KNOWN)) {
    if (KNOWN[name].includes(kept.get(name))) chosen[name] = kept.get(name);
  }
  for (const name of FREE) chosen[name] = kept.get(name) ?? "";
  for (const choice of controls ? all("select", controls) : []) {
    const value = kept.get(choice.name) ?? "";
    if ([...choice.options].some((option) => option.value === value)) chosen[choice.name] = value;
  }
  if (known(kept.get("run"))) chosen.selected = kept.get("run");
  Object.assign(state, chosen);
  show();
  for (const table of all("table.sortable")) restore(table);
  const at = kept.get("at") ?? (state.compare && "compare");
  return at ? reveal(at) : undefined;
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
  await comparing;
  const found = document.getElementById(id) ?? (await unearth(id));
  if (!found) return;
  for (let fold = found.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    fold.open = true;
  }
  await unpack(found.closest("details"));
  if (found.closest(".filtered")) change(Object.fromEntries(FILTERS.map((name) => [name, ""]))); // else it can't be seen
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

const idle = (act) => (window.requestIdleCallback ?? ((then) => setTimeout(then, 200)))(act);
const MOST_OTHERS = 200; // folds beyond which a page is so large that closed ones stay packed

/** Unpacks what is not of one run while nothing else is to do, for paper and the browser's search. */
async function unpackOthers() {
  const others = all("details[data-packed]:not([data-holds], [data-run])");
  if (!others.length || others.length > MOST_OTHERS) return;
  await unpack(others[0]);
  idle(unpackOthers);
}

function warning(text) {
  const line = document.createElement("p");
  line.className = "warning";
  line.textContent = text;
  return line;
}
