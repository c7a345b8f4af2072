// Numbers as coloured cells, each of which can be read: by pointing at it, or with the arrow keys.

import { ARROWS, cellUnder, clamp, hasModifier, largest, make } from "./dom.js";
import { tint } from "./pictures.js";

const MOST_TEXTS = 25; // numbers that are written into their cells

export const percent = (fraction) => `${(100 * fraction).toFixed(1)} %`;
export const inPercent = (value) => `${(100 * value).toFixed(2)} %`; // as a number of the model is read
export const rowOf = (matrix, row, width) => matrix.subarray(row * width, (row + 1) * width);
export const largestSize = (...rows) => Math.max(...rows.map((values) => largest(values.map(Math.abs))));

export function digits(value) {
  if (value === 0) return "0";
  const isPlain = Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5;
  return (isPlain ? value.toPrecision(4) : value.toExponential(2)).replace("-", "−");
}

// A row of a matrix as what show() takes, with more of it.
export const row = (matrix, index, width, more = {}) => ({
  values: rowOf(matrix, index, width),
  columns: width,
  ...more,
});

export const isLight = (pixel) =>
  0.3 * (pixel & 255) + 0.59 * ((pixel >> 8) & 255) + 0.11 * ((pixel >> 16) & 255) > 140;

// Cells in a place of the page, named by a label. show({values, columns, ...}) shows numbers:
//   colours: "signed" about zero, "heat" from zero, "grey" from 0 to 1; most: the number with the strongest colour
//   texts: the numbers are written into their cells, if they are few, with percentages: as such; labels: words below
//   name(i): what number i is; more: said of all, in place of their range; square: cells are
//   write(v): a number as it is read
//   sources(i): where number i comes from, see sources.js; pointed(i): what follows; chosen: what did last
// frameSources([first, last]) frames numbers of one row that another one comes from; frameSources() none.
// The event "sources" says, by name, which numbers of other cells the one that is pointed at comes from.
export function cells({ pixels, say }, place, label) {
  const canvas = make("canvas", { tabIndex: 0 });
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "numbers");
  const texts = make("div", { className: "texts", ariaHidden: "true" });
  const mark = make("i", { className: "mark" });
  const source = make("i", { className: "mark source" });
  const box = make("div", { className: "cells" }, canvas, texts, source, mark);
  const labels = make("div", { className: "labels", ariaHidden: "true" });
  const reading = make("p", { className: "reading" }, "\u00a0");
  place.append(box, labels, reading);
  let shown = { values: [0], columns: 1 };
  let at = null; // the number that is read

  function summary() {
    const { values, more, write = digits } = shown;
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    const range = low === high ? `, all ${write(low)}` : ` from ${write(low)} to ${write(high)}`;
    return `${values.length.toLocaleString("en")} numbers${more || range}`;
  }

  function read() {
    const { values, name, sources, write = digits } = shown;
    if (at !== null && at >= values.length) at = null;
    const framed = at ?? shown.chosen ?? null;
    mark.style.display = framed === null ? "none" : "";
    if (framed !== null) frame(mark, framed, 1);
    canvas.setAttribute("aria-label", `${label}: ${summary()}. Arrow keys read them.`);
    if (at === null) {
      reading.textContent = summary();
      return;
    }
    const { text, sourceCells } = sources?.(at) ?? {};
    reading.textContent = `${name ? name(at) : `number ${at}`}: ${text ? `${text} = ` : ""}${write(values[at])}`;
    announceSources(sourceCells);
  }

  const announceSources = (sourceCells = {}) =>
    place.dispatchEvent(new CustomEvent("sources", { detail: sourceCells, bubbles: true }));

  function frame(element, first, count) {
    const { values, columns } = shown;
    const rows = values.length / columns;
    element.style.left = `${(100 * (first % columns)) / columns}%`;
    element.style.top = `${(100 * Math.floor(first / columns)) / rows}%`;
    element.style.width = `${(100 * count) / columns}%`;
    element.style.height = `${100 / rows}%`;
  }

  function frameSources(framed) {
    source.style.display = framed ? "" : "none";
    if (framed) frame(source, framed[0], framed[1] - framed[0] + 1);
  }

  function drawCells() {
    const { values, columns, most = largestSize(values), colours = "signed" } = shown;
    const least = colours === "signed" ? -1 : 0;
    const strength = (value) => (clamp(value / most, least, 1) - least) / (1 - least);
    return tint(canvas, values, columns, pixels[colours], strength);
  }

  // The numbers as they are written into their cells, with as many digits as all have room for; none: without room.
  function written({ values, columns, percentages = false }) {
    const pen = canvas.getContext("2d");
    const { fontSize, fontFamily } = getComputedStyle(texts); // "font" is empty where a phone adjusts sizes
    pen.font = `${fontSize} ${fontFamily}`;
    const room = box.clientWidth / columns;
    const round = (v, places) => (percentages ? (100 * v).toFixed(places - 1) : v.toFixed(places)).replace("-", "−");
    const rounded = [2, 1].map((places) => Array.from(values, (v) => round(v, places)));
    return rounded.find((all) => all.every((one) => pen.measureText(one).width + 4 < room)) ?? [];
  }

  function drawTexts(drawn) {
    const some = shown.texts && shown.values.length <= MOST_TEXTS ? written(shown) : [];
    if (texts.childElementCount !== some.length) texts.replaceChildren(...some.map(() => make("span")));
    texts.style.gridTemplateColumns = `repeat(${shown.columns}, minmax(0, 1fr))`;
    some.forEach((textContent, i) => {
      Object.assign(texts.children[i], { textContent });
      texts.children[i].style.color = isLight(drawn[i]) ? "#000000" : "#ffffff";
    });
  }

  // isOther: of another token, so no number of it was pointed at yet.
  function show(next, isOther = false) {
    shown = next;
    if (isOther) at = null;
    const { values, columns, square } = next;
    const rows = values.length / columns;
    box.classList.toggle("square", Boolean(square));
    box.style.setProperty("--rows", rows);
    box.style.setProperty("--columns", columns);
    drawTexts(drawCells());
    const { labels: words = [] } = next;
    labels.replaceChildren(...words.map((word) => make("span", { textContent: word, title: word })));
    read();
  }

  function point(event) {
    at = cellUnder(canvas, [shown.values.length / shown.columns, shown.columns], event);
    read();
    shown.pointed?.(at);
  }
  function leave() {
    if (at !== null) announceSources({});
    at = null;
    read();
  }
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.focus({ preventScroll: true }); // now, so that what was read before is left before this is read
    point(event);
  });
  canvas.addEventListener("pointerleave", ({ pointerType }) => {
    if (pointerType !== "touch") leave(); // a finger has left when it is lifted, and then its number is read
  });
  canvas.addEventListener("blur", leave);
  canvas.addEventListener("keydown", (event) => {
    if (hasModifier(event)) return;
    const last = shown.values.length - 1;
    if (event.key in ARROWS) {
      const [down, right] = ARROWS[event.key];
      at = at === null ? 0 : clamp(at + down * shown.columns + right, 0, last); // an arrow begins at the first
    } else if (event.key === "Home") at = 0;
    else if (event.key === "End") at = last;
    else return;
    event.preventDefault();
    read();
    shown.pointed?.(at);
    say(reading.textContent);
  });
  frameSources();
  return { show, frameSources };
}
