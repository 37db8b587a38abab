"use strict";
const theme = JSON.parse(document.getElementById("theme")?.textContent ?? "{}");
const specs = {};
for (const held of document.querySelectorAll("script.spec")) specs[held.dataset.kind] = held.textContent;
const dark = matchMedia("(prefers-color-scheme: dark)").matches;

function draw(figure) {
  if (figure.dataset.drawn) return;
  figure.dataset.drawn = "yes";
  const own = JSON.parse(figure.querySelector("script").textContent);
  const {kind} = figure.dataset;
  const spec = kind ? {...JSON.parse(specs[kind]), datasets: own.datasets} : own;
  for (const param of spec.params ?? []) if (param.name in (own.params ?? {})) param.value = own.params[param.name];
  const room = Math.max(figure.clientWidth - 84, 220);
  for (const part of spec.vconcat ?? []) if (part.width > room) part.width = room;
  const options = {mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: theme};
  if (dark) options.tooltip = {theme: "dark"};
  vegaEmbed(figure.querySelector(".chart"), spec, options);
}

async function unpack(fold) {
  const [block, place] = fold.dataset.packed.split(".");
  delete fold.dataset.packed;
  const held = document.querySelectorAll("script.pack")[block].textContent;
  const bytes = Uint8Array.from(atob(held), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bodies = JSON.parse(await new Response(stream).text());
  fold.insertAdjacentHTML("beforeend", bodies[place]);
  look(fold);
}

function look(root) {
  for (const figure of root.querySelectorAll("figure")) {
    const fold = figure.closest("details:not([open])");
    if (fold) fold.addEventListener("toggle", () => draw(figure));
    else draw(figure);
  }
}

document.addEventListener("toggle", ({target: fold}) => {
  if (fold.open && fold.dataset.packed) unpack(fold);
}, true);
look(document);
