// What the page's sections are made of: elements, bars, tables, pictures.

/** An element: make("p", { class: "x", onclick: f }, "text", child, …). Text is text, never HTML. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "circle", "rect", "text", "title"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const swatch = (category) => make("i", { class: `swatch c-${categories[category].name}`, "aria-hidden": "true" });
const labelled = (category) => make("span", { class: "nowrap" }, swatch(category), make("span", { class: "label-text" }, " ", categories[category].label));

/** A section with its heading, listed in the contents. */
function section(id, short, title, lead) {
  const made = make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title));
  if (lead) made.append(make("p", { class: "lead" }, lead));
  document.querySelector("main").append(made);
  document.getElementById("contents").append(make("a", { href: `#${id}` }, short));
  return made;
}

/** columns: [{ title, number }]; rows: cells, or { cells, class, … } with attributes of the row. */
function table(caption, columns, rows, attributes = {}) {
  const head = make("tr", {}, ...columns.map((c) => make("th", { scope: "col", class: c.number ? "number" : c.class }, c.title)));
  const body = rows.map((row) => {
    const { cells, ...more } = Array.isArray(row) ? { cells: row } : row;
    return make("tr", more, ...cells.map((cell, i) => make(i === 0 ? "th" : "td", { scope: i === 0 ? "row" : null, class: columns[i].number ? "number" : columns[i].class }, ...(Array.isArray(cell) ? cell : [cell]))));
  });
  return make("div", { class: "scroll" }, make("table", attributes, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body)));
}

/** A heap of categories on a line of length whole. */
function stack(sums, whole) {
  const bar = make("span", { class: "stack", "aria-hidden": "true" });
  sums.forEach((size, i) => {
    if (size > 0) bar.append(make("span", { class: `part c-${categories[i].name}`, style: `width:${(100 * size) / whole}%`, title: `${categories[i].label} ${bytes(size)}` }));
  });
  return bar;
}

function legend(used) {
  return make("ul", { class: "legend", "aria-label": "Colours" }, ...categories.filter((c) => used[c.index] > 0).map((c) => make("li", {}, labelled(c.index))));
}

const listed = (sums) => categories.filter((c) => sums[c.index] > 0).map((c) => `${c.label} ${bytes(sums[c.index])}`).join(", ");

/** Round numbers from 0 to the first past most, in units of a power of 1024. */
function ticks(most, count = 4) {
  const unit = most >= KiB ** 4 ? KiB ** 4 : most >= KiB ** 3 ? KiB ** 3 : most >= KiB ** 2 ? KiB ** 2 : most >= KiB ? KiB : 1;
  const rough = most / unit / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) * unit;
  const found = [];
  for (let at = 0; at <= most; at += step) found.push(at);
  return found;
}
/** A tick's label: no more digits than it needs. */
const trimmed = (said) => said.replace(/(\.\d*?)0+(?= )/, "$1").replace(/\.(?= )/, "");
const tick = (n) => (n === 0 ? "0" : trimmed(bytes(n)));

/** Round numbers between two, about so many apart. */
function rounds(low, high, count = 4) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; ++i) found.push(i * step);
  return found;
}

/** "cp 2 · dp 16", to be broken before its dots only. */
const unbroken = (layout) => layout.split(" \u00b7 ").map((part) => (part.includes("[") ? part : part.replaceAll(" ", "\u00a0"))).join(" \u00b7\u00a0");

/** Draws again when the width changes, and for paper. draw(width) gives an SVG. */
function picture(draw) {
  const box = make("div", { class: "picture" });
  let width = 0;
  const redraw = (to) => {
    if (to > 0 && to !== width) box.replaceChildren(draw((width = to)));
  };
  new ResizeObserver(() => redraw(Math.round(box.clientWidth))).observe(box);
  window.addEventListener("beforeprint", () => redraw(680));
  window.addEventListener("afterprint", () => redraw(Math.round(box.clientWidth)));
  return { box, again: () => box.clientWidth > 0 && box.replaceChildren(draw((width = Math.round(box.clientWidth)))) };
}

/** Buttons of which one is pressed. */
function choice(label, names, chosen, pick) {
  const group = make("div", { class: "choice", role: "radiogroup", "aria-label": label });
  const buttons = names.map((name, i) => make("button", {
    type: "button", role: "radio", "aria-checked": String(i === chosen), tabindex: i === chosen ? "0" : "-1",
    onclick: () => set(i),
    onkeydown: (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const next = (i + by + names.length) % names.length;
      buttons[next].focus();
      set(next);
    },
  }, name));
  function set(to) {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-checked", String(i === to));
      button.tabIndex = i === to ? 0 : -1;
    });
    pick(to);
  }
  group.append(...buttons);
  return group;
}
