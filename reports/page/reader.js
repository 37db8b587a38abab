// --- the reader ---------------------------------------------------------------------------------

/** The part of the page that is being read; nothing at the page's top. */
function placeRead() {
  const heads = [...all("main h2[id], main > section[id]")];
  return heads.findLast((head) => head.offsetHeight && head.getBoundingClientRect().top < innerHeight / 3 && scrollY > innerHeight / 2);
}

document.addEventListener("toggle", ({target}) => {
  if (target.open) unpack(target);
}, true);
document.addEventListener("change", ({target}) => {
  if (!controls?.contains(target) || !(target.name in state)) return;
  const place = placeRead();
  change({[target.name]: target.value});
  if (place && !place.matches(".filtered")) land(place);
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
const buttons = new Map(); // of headings, while they are printed
addEventListener("beforeprint", () => {
  for (const head of all(".sortable thead th")) { // with a button it would not be on each page
    buttons.set(head, [...head.childNodes]);
    head.replaceChildren(titleOf(head));
  }
  for (const fold of all("details:not([open], [data-packed])")) {
    fold.open = true;
    fold.dataset.closed = ""; // on the screen
  }
  for (const figure of all("figure[aria-label]")) if (!figure.closest("details:not([open])")) draw(figure);
});
addEventListener("afterprint", () => {
  for (const [head, button] of buttons) head.replaceChildren(...button);
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
    freeWidths();
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
  idle(unpackOthers);
});
