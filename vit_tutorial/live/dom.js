// What every module draws with: elements, colours, cells of a canvas.

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const largest = (row) => row.reduce((most, value) => Math.max(most, value), 1e-12);
export const hasModifier = (event) => event.shiftKey || event.ctrlKey || event.altKey || event.metaKey;
export const unbroken = (text) => text.replaceAll(" %", "\u00a0%"); // no line begins with a percent sign
export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
export const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }; // row, column

export const reveal = (element, block = "nearest") =>
  element.scrollIntoView({ block, behavior: isStill() ? "auto" : "smooth" });

// Scrolls what an element lies in: a notebook's panel, or the window.
export function scrollAround(element, distance) {
  const isScrolled = (place) =>
    place.scrollHeight > place.clientHeight && /auto|scroll/.test(getComputedStyle(place).overflowY);
  let place = element;
  while (place && !isScrolled(place)) place = place.parentElement;
  (place ?? window).scrollBy(0, distance);
}

// The first is chosen.
export function radios(place, name, contents, choose) {
  const labels = contents.map((content, i) => {
    const input = make("input", { type: "radio", name, value: i, checked: i === 0 });
    input.onchange = () => choose(i);
    return make("label", {}, input, content);
  });
  place.append(...labels);
}

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Browsers before 2025 have no fromBase64.
export const bytes = (base64) =>
  Uint8Array.fromBase64?.(base64) ?? Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

// A colour map, 256 colours of six hexadecimal digits, as 256 pixels of an ImageData, seen as a Uint32Array.
export function pixelsOf(map) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const rgb = parseInt(map.slice(6 * i, 6 * i + 6), 16);
    return ((255 << 24) | ((rgb & 255) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
  });
}

// A canvas with as many pixels as the screen has where it stands; null while it is hidden.
export function sharpen(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (!width) return null;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  return context;
}

// Where cell n of a grid lies: [left, top, width, height] in whole pixels, so that neighbours meet.
export function cellBox({ width, height }, [rows, columns], n) {
  const row = Math.floor(n / columns);
  const column = n % columns;
  const left = Math.round((column * width) / columns);
  const top = Math.round((row * height) / rows);
  const right = Math.round(((column + 1) * width) / columns);
  const bottom = Math.round(((row + 1) * height) / rows);
  return [left, top, right - left, bottom - top];
}

// A frame just within a box, with a white edge: it is seen on any picture.
export function drawFrame(context, [x, y, w, h], colour, points) {
  const line = points * (window.devicePixelRatio || 1);
  context.strokeStyle = "#ffffff";
  context.lineWidth = 1.6 * line;
  context.strokeRect(x + line / 2, y + line / 2, w - line, h - line);
  context.strokeStyle = colour;
  context.lineWidth = line;
  context.strokeRect(x + line / 2, y + line / 2, w - line, h - line);
}

// The cell of a grid that an event points at.
export function cellUnder(canvas, [rows, columns], { clientX, clientY }) {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const row = clamp(Math.floor(((clientY - top) / height) * rows), 0, rows - 1);
  const column = clamp(Math.floor(((clientX - left) / width) * columns), 0, columns - 1);
  return row * columns + column;
}
