// --- tables that can be sorted, searched, narrowed and copied ------------------------------------

const texts = new Intl.Collator("en", {numeric: true});
const UNKNOWN = "\u2013"; // the sign of the page for an unknown figure
const FORMULA = /^[=+\-@\t]/; // a spreadsheet would compute such a text

/** An element with its children; attributes become properties. */
function built(name, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(name), attributes);
  element.append(...children);
  return element;
}

const headsOf = (table) => [...table.tHead.rows[0].cells];
const rowsOf = (table) => [...table.tBodies[0].rows];

/** A heading in one line: of several lines, a blank is between two. */
const titleOf = (head) => head.dataset.title ?? head.textContent;

const titleWithUnit = (head) => titleOf(head) + (head.dataset.unit ? ` [${head.dataset.unit}]` : "");

/** A column's name in searches and in the address: its heading without the unit. */
const nameOfColumn = (head) => titleOf(head).replace(/ \[.*/, "");

/** Gives tables their tools, and their headings buttons; without a script they are plain tables. */
function arrange(within) {
  for (const table of all("table.sortable", within)) {
    for (const head of headsOf(table)) {
      for (const line of all("br", head)) line.replaceWith(" ");
      head.dataset.title = head.textContent.trim();
      if (head.matches(".drawn")) continue;
      const button = built("button", {type: "button", className: "sort"}, ...head.childNodes);
      button.addEventListener("click", () => turn(head));
      head.append(button);
    }
    table.closest(".scroll").before(toolsOf(table));
    choosable(table);
    restore(table);
  }
}

/** The line above a table: search, choice of columns, copy and CSV. */
function toolsOf(table) {
  const input = built("input", {type: "search", autocomplete: "off"});
  const example = headsOf(table).find((head) => head.matches(".number"));
  input.placeholder = `words, or ${example ? nameOfColumn(example) : "column"}:8 MFU>=40`;
  table.tBodies[0].dataset.hint = FIND_HINT;
  const found = built("output");
  input.addEventListener("input", () => {
    keepWidths(table);
    label("");
    state.find = input.value;
    find(table);
    remembered();
  });
  const [copy, save] = CSV_BUTTONS.map((word) => built("button", {type: "button", className: "csv"}, word));
  const said = built("span", {role: "status"});
  const label = (text) => { said.textContent = text; };
  copy.addEventListener("click", async () => label(await copied(csvOf(table))));
  save.addEventListener("click", () => label(saved(csvOf(table), `${table.closest("section")?.id || "table"}.csv`)));
  const words = built("label", {}, "Search all columns ", input);
  return built("div", {className: "find screen"}, words, found, orderOf(table), copy, save, said, columnsOf(table));
}

const FIND_HINT = "Words search all columns. COLUMN:VALUE, COLUMN>NUMBER and COLUMN<=NUMBER search one.";

/** Keeps the widths of a table's columns, so that a search moves no heading. */
function keepWidths(table) {
  const heads = headsOf(table).filter((head) => !head.style.getPropertyValue("--width"));
  const widths = heads.map((head) => head.getBoundingClientRect().width); // rounded, they add up to pixels
  for (const [at, head] of heads.entries()) if (widths[at]) head.style.setProperty("--width", `${widths[at]}px`);
}

/** Lets the columns take the widths that they need. */
function freeWidths() {
  for (const head of all(".sortable thead th")) head.style.removeProperty("--width");
}

const CSV_BUTTONS = ["Copy", "Save"];

/** Says how many rows the CSV will have, where it is not all of them. */
function countCsv(table, fitting) {
  const every = fitting === rowsOf(table).length;
  const rows = every ? "" : ` ${fitting} ${fitting === 1 ? "row" : "rows"}`;
  for (const [at, button] of [...all(".csv", toolsBefore(table))].entries()) {
    button.textContent = `${CSV_BUTTONS[at]}${rows} as CSV`;
  }
}

/** The choice of an order, for narrow screens, where rows are cards without headings. */
function orderOf(table) {
  const heads = headsOf(table).filter((head) => head.querySelector(".sort"));
  const options = heads.map((head) => built("option", {}, head.dataset.title));
  const list = built("select", {autocomplete: "off"}, built("option", {value: ""}, "as written"), ...options);
  list.addEventListener("change", () => {
    const head = heads[list.selectedIndex - 1];
    state.sort = head ? `${nameOfColumn(head)}:${bestFalls(head) ? "descending" : "ascending"}` : "";
    restore(table);
    remember();
  });
  return built("label", {className: "order"}, "Sort by ", list);
}

const toolsBefore = (table) => table.closest(".scroll").previousElementSibling;

/** The menu of columns; the first, which names the row, stays. */
function columnsOf(table) {
  const menu = built("details", {className: "columns"}, built("summary", {}, "Columns"));
  for (const head of headsOf(table).slice(1)) {
    const box = built("input", {type: "checkbox", checked: true, autocomplete: "off"});
    box.dataset.column = nameOfColumn(head);
    if (head.matches(".extra")) box.dataset.extra = "yes";
    box.addEventListener("change", () => {
      const boxes = [...all("[data-column]", menu)];
      const listed = (some) => boxes.filter(some).map(({dataset}) => dataset.column).join(",");
      state.hide = listed(({checked, dataset}) => !checked && !dataset.extra);
      state.more = listed(({checked, dataset}) => checked && dataset.extra);
      narrow(table);
      remember();
    });
    menu.append(built("label", {}, box, ` ${head.dataset.title}`));
  }
  return menu;
}

/** Gives a table what the address keeps: order, search and columns. */
function restore(table) {
  const [column, way] = state.sort.split(":");
  const heads = headsOf(table);
  const sorted = WAYS.includes(way) && heads.find((head) => nameOfColumn(head) === column);
  if (!sorted && heads.some((head) => head.ariaSort)) table.tBodies[0].append(...orders.get(table));
  for (const head of heads) head.ariaSort = head === sorted ? way : null;
  if (sorted) sort(sorted);
  toolsBefore(table).querySelector(".order select").value = sorted ? sorted.dataset.title : "";
  toolsBefore(table).querySelector("[type=search]").value = state.find;
  find(table);
  narrow(table);
}

const MORE = 250; // rows that a table shows at first, and each time that its end is near
const limits = new WeakMap(); // rows that tables show

/** Shows the first rows that fit: to lay out thousands takes seconds. All are searched and printed. */
function shorten(table) {
  const most = limits.get(table) ?? MORE;
  let fitting = 0;
  for (const row of rowsOf(table)) {
    row.classList.toggle("beyond", !row.matches(".filtered, .unfound") && ++fitting > most);
  }
  const box = table.closest(".scroll");
  const button = box.nextElementSibling?.matches(".more") ? box.nextElementSibling : moreOf(table);
  button.hidden = fitting <= most;
  button.textContent = `Show more: ${most} of ${fitting} rows are shown`;
  countCsv(table, fitting);
}

/** The button below a table that shows more of its rows; scrolling to its end does too. */
function moreOf(table) {
  const box = table.closest(".scroll");
  const button = built("button", {type: "button", className: "more screen"});
  const more = () => {
    limits.set(table, (limits.get(table) ?? MORE) + MORE);
    shorten(table);
  };
  button.addEventListener("click", more);
  box.addEventListener("scroll", () => {
    const end = box.scrollTop + 2 * box.clientHeight > box.scrollHeight;
    if (end && !button.hidden && box.clientHeight < box.scrollHeight) more();
  }, {passive: true});
  box.after(button);
  return button;
}

const WAYS = ["ascending", "descending"];
const orders = new WeakMap(); // rows of tables, as they were written

/** True if the first order of a column is from the largest figure down; seconds begin with the fewest. */
const bestFalls = (head) => head.matches(".number:not(.least)");

/** Sorts by a column, or the other way. */
function turn(head) {
  const falls = head.ariaSort ? head.ariaSort === "ascending" : bestFalls(head);
  for (const other of head.parentElement.cells) other.ariaSort = null;
  head.ariaSort = falls ? "descending" : "ascending";
  sort(head);
  toolsBefore(head.closest("table")).querySelector(".order select").value = head.dataset.title;
  state.sort = `${nameOfColumn(head)}:${head.ariaSort}`;
  remember();
}

/** Puts the rows in the order that a heading says; what is unknown comes last. */
function sort(head) {
  const table = head.closest("table");
  if (!orders.has(table)) orders.set(table, rowsOf(table));
  const numeric = head.matches(".number");
  const sign = head.ariaSort === "descending" ? -1 : 1;
  const keyed = rowsOf(table).map((row) => [keyOf(row.cells[head.cellIndex], numeric), row]);
  keyed.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (numeric ? a - b : texts.compare(a, b));
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
  shorten(table);
}

/** A cell's value in the unit of its heading: of the chosen convention, "" where it is unknown. */
function keyOf({dataset, textContent}, numeric) {
  if (!numeric) {
    const text = dataset.sort ?? textContent.trim();
    return text === UNKNOWN ? "" : text;
  }
  const parts = (dataset.sort ?? "").split(" ");
  const chosen = `${state.attention}_${state.peak}:`;
  const value = conventional(parts) ? parts.find((part) => part.startsWith(chosen))?.slice(chosen.length) : parts[0];
  return value ? Number(value) : "";
}

const conventional = (parts) => parts[0].includes(":");

/** Hides the rows that lack one of the words, or the value of a column. */
function find(table) {
  const words = wordsOf(state.find);
  const tests = words.map((word) => testOf(word, headsOf(table)));
  const fitting = rowsOf(table).filter((row) => {
    const fit = tests.every((test) => test(row));
    row.classList.toggle("unfound", !fit);
    return fit;
  });
  shorten(table);
  const tools = toolsBefore(table);
  tools.querySelector("output").textContent = words.length ? `${fitting.length} of ${rowsOf(table).length} rows` : "";
}

/** The words of a search; a comma may follow a word, and blanks may stand beside a sign. */
const wordsOf = (text) =>
  text.toLowerCase().replace(/\s*([:<>]=?)\s*/g, "$1").split(/,?\s+|,$/).filter(Boolean);

const SIGNS = {
  ":": (value, asked) => value === asked,
  "<": (value, asked) => value < asked,
  "<=": (value, asked) => value <= asked,
  ">": (value, asked) => value > asked,
  ">=": (value, asked) => value >= asked,
};

/** The test that a word of a search is: "qwen" of the whole row, "gpus:8" and "mfu>40" of a column. */
function testOf(word, heads) {
  const [, name, sign, text] = word.match(/^([^:<>]+)(:|[<>]=?)(.+)$/) ?? [];
  const head = name && heads.find((each) => nameOfColumn(each).toLowerCase() === name);
  if (!head) return (row) => row.textContent.toLowerCase().includes(word);
  const numeric = head.matches(".number");
  const asked = numeric ? Number(text.replaceAll(",", "")) : text;
  return (row) => {
    const cell = row.cells[head.cellIndex];
    const value = keyOf(cell, numeric);
    if (!numeric) return sign === ":" && `${value} ${cell.dataset.note ?? ""}`.toLowerCase().includes(asked);
    return value !== "" && SIGNS[sign](value, asked);
  };
}

/** Hides the columns that the reader left out, and the extra ones that were not asked for. */
function narrow(table) {
  const [hidden, more] = [state.hide, state.more].map((names) => new Set(names.split(",")));
  const isShown = (name, extra) => (extra ? more.has(name) : !hidden.has(name));
  for (const box of all("[data-column]", toolsBefore(table))) {
    box.checked = isShown(box.dataset.column, box.dataset.extra);
  }
  const places = headsOf(table).filter((head) => head.cellIndex && !isShown(nameOfColumn(head), head.matches(".extra")));
  const rule = places.map(({cellIndex}) => `.sortable tr > :nth-child(${cellIndex + 1})`).join();
  const tools = toolsBefore(table);
  const style = tools.querySelector("style") ?? tools.appendChild(built("style"));
  style.textContent = rule && `${rule} { display: none !important; }`;
}

// --- rows as CSV --------------------------------------------------------------------------------

/** The rows that are seen, in their order, with all columns; figures in the units of the page. */
function csvOf(table) {
  const rows = rowsOf(table).filter((row) => !row.matches(".filtered, .unfound"));
  const heads = headsOf(table).filter((head) => !head.matches(".drawn"));
  const columns = heads.flatMap((head) => csvColumns(head, rows, rowsOf(table)));
  if (rows.some(({dataset}) => dataset.run)) columns.push(["Run id", rows.map(({dataset}) => dataset.run)]);
  const lines = [columns.map(([title]) => title), ...rows.map((_, at) => columns.map(([, values]) => values[at]))];
  return lines.map((line) => line.map(csvCell).join(",")).join("\n") + "\n";
}

/** A column as title and values, and one of its notes where the table has one. */
function csvColumns(head, rows, everyRow) {
  const cellsOf = (some) => some.map((row) => row.cells[head.cellIndex]);
  const cells = cellsOf(rows);
  const numeric = head.matches(".number");
  const chosen = numeric && cellsOf(everyRow).some(({dataset}) => conventional((dataset.sort ?? "").split(" ")));
  const convention = chosen ? `, ${state.attention} attention, ${state.peak === "own" ? "peak in the precision of each operator" : "BF16 peak"}` : "";
  const values = [[titleWithUnit(head) + convention, cells.map((cell) => keyOf(cell, numeric))]];
  if (cellsOf(everyRow).some(({dataset}) => dataset.note)) {
    values.push([`${titleOf(head)}, note`, cells.map(({dataset}) => dataset.note ?? "")]);
  }
  return values;
}

function csvCell(value) {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Copies a text, also where a page has no right to the clipboard but by a command. */
async function copied(text) {
  const give = (event) => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  };
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch {
    document.addEventListener("copy", give, {once: true});
    const done = document.execCommand("copy");
    document.removeEventListener("copy", give);
    return done ? "Copied." : "This browser does not let the page copy. Save the CSV instead.";
  }
}

function saved(text, name) {
  const link = built("a", {download: name, href: URL.createObjectURL(new Blob([text], {type: "text/csv"}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  return `Saved as ${name}.`;
}

