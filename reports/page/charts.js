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
    if (isIntersecting) waiting.add(target);
    else waiting.delete(target);
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
  const drawn = views.get(figure) ?? plan; // its figure may have gone
  if (!drawn.made) return;
  // The figure's words say what the chart shows, and tables have its figures.
  Object.assign(chart, {role: "img", ariaLabel: figure.ariaLabel});
  place.querySelector("svg")?.setAttribute("aria-hidden", "true");
  chart.toggleAttribute("tabindex", chart.scrollWidth > chart.clientWidth + 1);
  if (chart.hasAttribute("tabindex")) chart.tabIndex = 0;
  tell(drawn);
  figure.dispatchEvent(new CustomEvent("drawn", {detail: drawn.made.view}));
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
  // Axes need not shrink with a panel, and each try costs a drawing; one that has grown fits exactly.
  const cut = plan.stacked && plan.wide >= NARROW ? over + 1 : (2 * over) / panels;
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
  tooltip: {theme: "page", sanitize: tipText},
});
/** A text of a tooltip as markup; what is unknown has the sign of the page. */
const tipText = (value) => (value === "null" ? UNKNOWN : String(value).replaceAll("&", "&amp;").replaceAll("<", "&lt;"));
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
    if (param.name === "narrow") param.value = stacked && wide < NARROW;
    else if (param.name === "stacked") param.value = stacked;
    else if (param.name in state) param.value = state[param.name];
    else if (param.name in (own.params ?? {})) param.value = own.params[param.name];
  }
  if (own.leaveOut) ofChosen(spec, own);
  const room = wide - BESIDE;
  const least = spec.hconcat && stacked && wide >= NARROW ? room : 0; // below one another there is room
  if (spec.hconcat && stacked) stack(spec);
  for (const part of sized(spec)) part.width = Math.max(LEAST, Math.min(Math.max(part.width, least), room) - cut);
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
  if (wider) Object.assign(box, {tabIndex: 0, role: "group", ariaLabel: captionOf(box)});
  else for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
}

const captionOf = (box) => box.querySelector("caption")?.firstChild?.textContent ?? "table";

/** Looks again when a table or its place has taken another size. */
const inSize = new ResizeObserver((changed) => {
  for (const box of new Set(changed.map(({target}) => target.closest(".scroll")))) reachable(box);
});

/** Places that are gone to stay clear of the bar that stands at the top. */
function clear() {
  const bar = controls?.closest("body > *");
  const stands = bar && getComputedStyle(bar).position === "sticky";
  root.style.scrollPaddingTop = stands ? `${bar.offsetHeight + 8}px` : "";
}

function look(within) {
  for (const figure of all("figure[aria-label]", within)) inView.observe(figure);
  for (const part of all(".scroll, .scroll > table", within)) inSize.observe(part);
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
