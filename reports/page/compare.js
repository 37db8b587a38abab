// --- chosen runs, side by side --------------------------------------------------------------------

const MOST_CHOSEN = 8;
const template = document.getElementById("comparison");
const PANELS = ["tgs", "step_s", "loss", "memory"];
const STEADY = "counted"; // a window that TGS counts
const OTHER_SPEED = "steps at another speed"; // one of a lasting speed that TGS is not of
const PALE = 0.55; // opacity of such windows
const ACROSS = {steps: "at", tokens: "tokens", time: "time_s"}; // the axis of each choice
const MINUTE = 60, HOUR = 3600; // seconds

const chosenRuns = () => state.compare.split(",").filter(Boolean);

/** Gives each row of a table a box to choose its run. */
function choosable(table) {
  if (!template) return;
  for (const row of rowsOf(table)) {
    const box = built("input", {type: "checkbox", className: "tick", autocomplete: "off"});
    box.ariaLabel = `Compare ${row.cells[0].dataset.sort}`;
    (row.cells[0].querySelector(".run") ?? row.cells[0]).prepend(box);
  }
  toolsBefore(table).append(built("p", {className: "chosen-count", role: "status"}));
  table.addEventListener("change", ({target}) => {
    if (target.matches(".tick")) choose(target.closest("tr").dataset.run, target.checked);
  });
  tick();
}

/** Adds a run to the chosen ones, or takes it away. */
function choose(run, more) {
  const others = chosenRuns().filter((each) => each !== run);
  const full = more && others.length === MOST_CHOSEN;
  changeChosen({compare: [...others, ...(more && !full ? [run] : [])].join(","), from: "", to: ""});
  if (full) for (const line of all(".chosen-count")) line.textContent = `At most ${MOST_CHOSEN} runs can be compared.`;
}

/** Shows in the table which runs are chosen, and leads to them. */
function tick() {
  const runs = chosenRuns();
  for (const box of all(".tick")) box.checked = runs.includes(box.closest("tr").dataset.run);
  for (const line of all(".chosen-count")) {
    if (runs.length > 1) line.replaceChildren(built("a", {href: "#compare"}, `Compare ${runs.length} chosen runs`));
    else line.replaceChildren(runs.length ? "1 run ticked. Tick another to compare them." : "Tick two to eight runs to compare them.");
  }
}

let shown = ""; // what the section was last made of

/** Makes the section of the chosen runs what the reader chose; it is there from two runs on. */
async function compare() {
  if (!template) return;
  tick();
  const asked = JSON.stringify([state.compare, state.x, state.from, state.to, state.facts]);
  if (asked === shown) return;
  shown = asked;
  const runs = [];
  for (const run of chosenRuns()) runs.push(await heldOf(run));
  if (asked !== shown) return; // the reader has chosen something else since
  const told = runs.filter(Boolean).map((run, place) => ({...run, place}));
  if (told.length < 2) return document.getElementById("compare")?.remove();
  const section = document.getElementById("compare") ?? opened();
  section.querySelector(".chosen-runs").replaceChildren(...told.map(signOf));
  section.querySelector("[name=facts]").checked = state.facts === "differing";
  overlay(section, told);
  const {differing, partly} = tabulate(section.querySelector(".facts"), told);
  const some = partly ? `, ${partly} ${partly === 1 ? "is" : "are"} not known of all runs` : "";
  section.querySelector(".differing").textContent = `${differing} ${differing === 1 ? "fact differs" : "facts differ"}${some}`;
}

/** Puts the section where its template is. */
function opened() {
  const section = template.content.querySelector("section").cloneNode(true);
  template.after(section);
  look(section);
  section.addEventListener("change", ({target}) => {
    if (target.name === "facts") changeChosen({facts: target.checked ? "differing" : "all"});
    else if (target.name === "x") changeChosen({x: target.value, from: "", to: ""});
    else if (target.name in state) changeChosen({[target.name]: target.value});
  });
  section.addEventListener("click", ({target}) => {
    if (target.matches(".whole")) changeChosen({from: "", to: ""});
    if (target.matches(".none")) changeChosen({compare: "", from: "", to: ""});
    if (target.dataset.leave) choose(target.dataset.leave, false);
  });
  return section;
}

const held = new Map(); // of runs: their row, facts and curves

/** What the page has of a run, also in packed folds; null for a run that is not on the page. */
async function heldOf(run) {
  if (!held.has(run)) {
    const row = await rowOf(run);
    const part = row && (await partOf(run));
    const drawn = part?.querySelector('figure[data-kind^="course"] > script');
    const bins = drawn ? rows(JSON.parse(drawn.textContent).datasets.bins) : [];
    held.set(run, row ? {run, row, bins, described: Boolean(part), facts: factsIn(part), losses: lossesIn(part), asked: askedIn(part)} : null);
  }
  return held.get(run);
}

/** The run's row in the table of all runs, which a large page has in a fold. */
async function rowOf(run) {
  const find = () => [...all("#runs table.sortable tbody tr")].find(({dataset}) => dataset.run === run);
  if (!find()) await unpack(document.querySelector("#runs details[data-packed]"));
  return find();
}

/** The run's own part of the page; a packed one is read and stays closed. */
async function partOf(run) {
  const fold = document.getElementById(`run-${run}`) ?? (await unearth(`run-${run}`));
  if (!fold?.dataset.packed) return fold;
  return new DOMParser().parseFromString(await bodyOf(fold), "text/html");
}

/** The cells of the facts in a run's part, by name. */
function factsIn(part) {
  const lines = part ? [...all('tr[data-at^="facts."]', part)] : [];
  return new Map(lines.map((line) => [line.cells[0].textContent, line.cells[1]]));
}

/** The losses in a run's part at counts that all runs share, by unit and count. */
function lossesIn(part) {
  const held = part?.querySelector("[data-losses]")?.dataset.losses ?? "";
  return new Map(held.split(" ").filter(Boolean).map((each) => {
    const [unit, count, loss] = each.split(":");
    return [`${unit}:${count}`, Number(loss)];
  }));
}

/** The facts that a run's part asks for. */
const askedIn = (part) => (part ? [...all('code[data-of^="complete_with."]', part)].map(({textContent}) => textContent) : []);

// --- their curves ---------------------------------------------------------------------------------

/** A chosen run in the legend: its stroke, a link to its part, and a button that takes it away. */
function signOf({run, row, place, described}) {
  const label = row.cells[0].dataset.sort;
  const name = described ? built("a", {href: `#run-${run}`, className: "name"}, label) : built("span", {className: "name"}, label);
  const leave = built("button", {type: "button", ariaLabel: `Do not compare ${label}`}, "\u00d7");
  leave.dataset.leave = run;
  return built("li", {}, strokeOf(place), " ", name, " ", leave);
}

const strokeOf = (place) => all(".stroke", template.content)[place].cloneNode(true);

/** Draws the curves anew, in a figure of their own: one that is being drawn can't be changed. */
function overlay(section, told) {
  const {unit, size} = unitOf(told);
  const known = told.flatMap((run) => pointsOf(run, size));
  const [low, high] = [Math.min, Math.max].map((least) => known.reduce((most, {x}) => least(most, x), known[0]?.x));
  const reach = known.length ? [bound("from", low), bound("to", high)] : [0, 1];
  if (reach[0] >= reach[1]) reach.splice(0, 2, low, high > low ? high : low + 1);
  const points = known.filter(({x}) => x >= reach[0] && x <= reach[1]);
  const own = {reach, digits: state.x === "tokens" ? "~s" : ",~r", least: state.x === "steps" ? 1 : 0};
  const leaveOut = PANELS.filter((name) => !points.some((point) => point[name] !== null));
  offer(section.querySelector("[name=x]"), told);
  for (const name of ["from", "to"]) section.querySelector(`[name=${name}]`).value = state[name];
  section.querySelector(".about").textContent = aboutCurves(told, known);
  const before = section.querySelector("figure");
  const figure = template.content.querySelector("figure").cloneNode(true);
  figure.querySelector("script").textContent = JSON.stringify({datasets: {points, one: [{}]}, params: own, leaveOut, across: unit});
  figure.querySelector(".chart").style.minHeight = `${before.querySelector(".chart").offsetHeight}px`;
  figure.addEventListener("drawn", ({detail}) => zoomable(figure, detail));
  views.get(before)?.made?.finalize();
  views.delete(before);
  inView.unobserve(before);
  before.replaceWith(figure);
  figure.hidden = !points.length;
  inView.observe(figure);
}

/** Says which axes no chosen run has. */
function offer(list, told) {
  for (const option of list.options) {
    const none = !told.some(({bins}) => bins.some((bin) => bin[ACROSS[option.value]] !== null));
    option.disabled = none && option.value !== state.x;
    option.textContent = option.value + (none ? " (not known of these runs)" : "");
  }
  list.value = state.x;
}

const bound = (name, usual) => (state[name] !== "" && Number.isFinite(Number(state[name])) ? Number(state[name]) : usual);

/** The title of the axis, and the size of its unit. */
function unitOf(told) {
  if (state.x !== "time") return {unit: state.x === "steps" ? "step" : "tokens, over all GPUs", size: 1};
  const longest = Math.max(0, ...told.flatMap(({bins}) => bins.map(({time_s}) => time_s ?? 0)));
  const [word, size] = longest >= 2 * HOUR ? ["h", HOUR] : longest >= 2 * MINUTE ? ["min", MINUTE] : ["s", 1];
  return {unit: `time since the first logged step [${word}]`, size};
}

/** The points of a run's curves; TGS is that of windows at a lasting speed, in parts of one speed. */
function pointsOf({run, row, place, bins}, size) {
  const across = ACROSS[state.x];
  const parts = partsOf(bins);
  return bins.map((bin, at) => ({
    run_id: run,
    run: row.cells[0].dataset.sort,
    place: String(place),
    x: bin[across] === null ? null : bin[across] / size,
    steps: stepsOf(bin),
    tgs: [STEADY, OTHER_SPEED].includes(bin.window) ? bin.tgs : null,
    step_s: bin.step_s,
    loss: bin.loss,
    memory: bin.memory,
    ...parts[at],
  })).filter(({x}) => x !== null);
}

const stepsOf = ({step, last_step}) => (step === last_step ? `${step}` : `${step}\u2013${last_step}`);

/** Of each bin the number of changes of speed before it, and the opacity of such steps. */
function partsOf(bins) {
  let [part, opacity] = [0, 1];
  return bins.map(({window}) => {
    const now = {[STEADY]: 1, [OTHER_SPEED]: PALE}[window] ?? opacity;
    if (now !== opacity) part++;
    opacity = now;
    return {part, opacity};
  });
}

const isMicro = ({row}) => row.querySelector('[data-note="micro-step"]') !== null;

/** Runs that have no curve, and those whose steps are of another kind. */
function aboutCurves(told, known) {
  const named = (runs) => runs.map(({row}) => row.cells[0].dataset.sort).join(", ");
  const without = told.filter(({run, described}) => described && !known.some((point) => point.run_id === run));
  const brief = told.filter(({described}) => !described);
  const micro = told.filter(isMicro);
  const words = [];
  const what = {steps: "curve", tokens: "count of tokens", time: "clock"}[state.x];
  const why = state.x === "tokens" ? without.map(lackingTokens) : [];
  const shown = without.map((run, at) => named([run]) + (why[at] ? ` (missing: ${why[at]})` : "")).join(", ");
  if (without.length) words.push(`Not drawn, since the page has no ${what} of them: ${shown}.`);
  if (brief.length) words.push(`This page has only a row of its tables for ${named(brief)}. For curves and all facts, make a report of these runs alone: fairmfu report RUN\u2026`);
  if (micro.length && micro.length < told.length) words.push(`Steps are micro-steps in ${named(micro)}, and optimizer steps in the others.`);
  return words.join(" ");
}

/** The facts without which the tokens of a run are unknown. */
function lackingTokens({row, facts, asked}) {
  const lacking = [];
  if (!row.querySelector('[data-of="gpus"]').dataset.sort) lacking.push("gpus");
  if (!facts.has("seq_len")) lacking.push("seq_len");
  if (!facts.has("global_batch_size") && !facts.has("micro_batch_size")) lacking.push("global_batch_size");
  if (asked.includes("packed")) lacking.push("packed");
  return lacking.join(", ");
}

/** Makes the spec of all panels that of these runs: without empty panels, with the axis' title. */
function ofChosen(spec, {leaveOut, across}) {
  spec.vconcat = spec.vconcat.filter(({name}) => !leaveOut.includes(name));
  each(spec.vconcat, ({x}) => { if (x?.axis) x.axis.title = across; });
}

/** Zooms to what the reader draws across a panel. */
function zoomable(figure, view) {
  figure.querySelector(".chart").style.minHeight = "";
  figure.addEventListener("pointerup", () => setTimeout(() => {
    for (const name of PANELS) {
      const across = signalOf(view, `zoom_${name}`)?.x;
      if (across) changeChosen({from: String(rounded(across[0])), to: String(rounded(across[1]))});
    }
  }));
}

function signalOf(view, name) {
  try {
    return view.signal(name);
  } catch {
    return undefined; // a panel that is left out has none
  }
}

const rounded = (value) => Number(value.toPrecision(4));

// --- their facts ----------------------------------------------------------------------------------

/** Fills the table of facts: a column for each run, a row for each column of runs and each fact.
    Counts the facts that differ, and those that are not known of all runs. */
function tabulate(table, told) {
  const heads = told.map((run) => {
    const head = built("th", {scope: "col"});
    head.append(strokeOf(run.place), " ", run.row.cells[0].dataset.sort);
    return head;
  });
  table.tHead.rows[0].replaceChildren(built("th", {scope: "col"}, "Fact"), ...heads);
  const columns = headsOf(told[0].row.closest("table")).slice(1);
  const lines = columns.map((head) => factLine(titleWithUnit(head), told.map(({run, row}) => [row.cells[head.cellIndex], `runs.${run}`])));
  lines.push(...lossLines(told));
  for (const name of new Set(told.flatMap(({facts}) => [...facts.keys()]))) {
    lines.push(factLine(name, told.map(({run, facts}) => {
      const cell = facts.get(name);
      return [cell, `runs.${run}.${cell?.parentElement.dataset.at}`];
    })));
  }
  const seen = lines.filter(({differs}) => differs || state.facts === "all").map(({line}) => line);
  const none = built("tr", {}, built("td", {colSpan: told.length + 1}, "The page knows no difference."));
  table.tBodies[0].replaceChildren(...(seen.length ? seen : [none]));
  const partly = lines.filter(({known}) => known && known < told.length).length;
  return {differing: lines.filter(({differs}) => differs).length - partly, partly};
}

/** A row of a fact with copies of the runs' cells; what shows as equal is no difference. */
function factLine(name, cells) {
  const head = built("th", {scope: "row"}, name);
  const line = built("tr", {}, head);
  const values = cells.map(([cell, place]) => {
    const copy = built("td", {className: "text"}, ...(cell ? [...cell.childNodes].map((node) => node.cloneNode(true)) : [UNKNOWN]));
    if (place && cell) copy.dataset.at = place;
    if (cell?.dataset.of) copy.dataset.of = cell.dataset.of;
    line.append(copy);
    return (copy.querySelector('[data-of="value"]') ?? copy).textContent.trim().replace(/\s+/g, " ");
  });
  const known = values.filter((value) => value !== UNKNOWN).length;
  const some = known === 1 ? "one run only" : `${known} of ${cells.length} runs`;
  if (known && known < cells.length) head.append(built("span", {className: "small"}, `known of ${some}`));
  return {line, differs: new Set(values).size > 1, known};
}

/** Rows of the last loss, and of the losses at the last count of tokens or steps that all runs have. */
function lossLines(told) {
  const lines = [];
  const last = told.map(({bins}) => bins.findLast(({loss}) => loss !== null));
  if (last.some(Boolean)) lines.push(factLine("Last loss", last.map((bin) => [bin && lossCell(bin.loss, `${bin.step === bin.last_step ? "step" : "mean of steps"} ${stepsOf(bin)}`)])));
  const micro = told.filter(isMicro).length;
  const shared = [...told[0].losses.keys()].filter((key) => told.every(({losses}) => losses.has(key)));
  const key = shared.at(-1);
  if (!key || (key.startsWith("steps") && micro && micro < told.length)) return lines;
  const [unit, count] = key.split(":");
  const name = `Loss at ${Number(count).toLocaleString("en")} ${unit}, the last such count of all`;
  return [...lines, factLine(name, told.map(({losses}) => [lossCell(losses.get(key))]))];
}

const lossCell = (loss, note = "") =>
  built("td", {}, loss.toPrecision(4), ...(note ? [built("span", {className: "small"}, note)] : []));
