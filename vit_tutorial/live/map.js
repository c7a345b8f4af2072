// The whole model in one picture, always there: what goes where, how much of it, and what is off. A click on a part
// opens its station, or cuts the part.

import { toggled } from "./changes.js";
import { clamp, hasModifier, make } from "./dom.js";
import { AFTER, BEFORE, EDGE, frameOf, linesOf, partsOfMap, planOf, reachOf } from "./map_layout.js";
import { change, draw } from "./page.js";
import { hasReached, reached } from "./story.js";
import { drawThumbnails } from "./thumbnails.js";

const SVG = "http://www.w3.org/2000/svg";
const CAPTION = 38; // pixels across, from the stream to a caption
const WITHOUT_BLOCKS = 52; // pixels above the stream while the story has come to no block

function captionsOf(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const words = { ...BEFORE, answer: end + AFTER.answer };
  return Object.entries(words).map(([textContent, a]) => {
    const element = make("span", { className: "caption", textContent, ariaHidden: "true" });
    const [x, y] = plan.place(a, CAPTION);
    Object.assign(element.style, { left: `${x}px`, top: `${y}px` });
    return { a, element };
  });
}

function buttonOf(plan, { a, c, w, h, text, part, label, to, head, look, step }, press) {
  const button = make("button", { type: "button", className: `part ${look ?? ""}`, tabIndex: -1, onclick: press });
  const [x, y] = plan.place(a, c);
  Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px` });
  if (["picture", "patches", "tokens"].includes(look) || head !== undefined) button.append(make("canvas"));
  button.append(make("span", { textContent: text }));
  button.setAttribute("aria-label", label);
  Object.assign(button.dataset, { to }, part && { part }, step !== undefined && { step });
  return button;
}

// The lines, and the grounds that blocks stand on.
function svgOf(plan) {
  const shape = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    return element;
  };
  const frames = plan.blocks.map((layer) => shape("rect", frameOf(plan, layer)));
  const lines = linesOf(plan).map((line) => ({ ...line, path: shape("path", { d: line.d }) }));
  const svg = shape("svg", { width: plan.size[0], height: plan.size[1] });
  svg.append(...frames, ...lines.map(({ path }) => path));
  return { svg, frames, lines };
}

// The diagram for a width, put in its place; press(part): what a click does.
function lay({ $, model }, width, press) {
  const plan = planOf(model.sizes, width);
  const { svg, frames, lines } = svgOf(plan);
  const parts = partsOfMap(plan).map((part) => ({ ...part, button: buttonOf(plan, part, () => press(part)) }));
  parts[0].button.tabIndex = 0; // arrow keys lead to the others
  const captions = captionsOf(plan);
  const inner = make("div", { className: "inner" });
  inner.style.height = `${plan.size[1]}px`;
  inner.append(svg, ...captions.map(({ element }) => element), ...parts.map(({ button }) => button));
  $(".map").replaceChildren(inner);
  return { width, plan, lines, frames, parts, captions };
}

// Keys on a part: arrows lead to the next one, x cuts it.
function walkWith(event, parts, cut) {
  const buttons = parts.map(({ button }) => button).filter((button) => !button.matches(".hidden"));
  const at = buttons.indexOf(event.target);
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const ends = { Home: 0, End: buttons.length - 1 };
  if (at < 0 || hasModifier(event)) return;
  const { part } = event.target.dataset;
  if (["x", "Delete"].includes(event.key) && part) cut(part);
  if (!by && !(event.key in ends)) return;
  event.preventDefault();
  const next = ends[event.key] ?? clamp(at + by, 0, buttons.length - 1);
  buttons[at].tabIndex = -1;
  buttons[next].tabIndex = 0;
  buttons[next].focus();
}

// Whether a part, or one that it is in, is off; not a shortcut in a block that is: tokens pass such a block.
function isOff(off, part) {
  if (part.endsWith(".residual")) return off.includes(part) && !off.includes(part.split(".", 2).join("."));
  return off.some((other) => part === other || part.startsWith(`${other}.`));
}

function drawPart({ state }, { button, part, label, to, layer, head }) {
  const { off } = state.changes;
  const isChosen = (layer ?? state.layer) === state.layer && (head ?? state.head) === state.head;
  const isWhole = part && !/(attention|mlp|heads\.\d+)$/.test(part); // a block or a shortcut, which has no station
  const isHere = to === state.station && isChosen && !isWhole;
  button.ariaCurrent = isHere ? "true" : null;
  button.ariaDisabled = state.isCutting && !part ? "true" : null;
  if (!part) return;
  const isShortcut = part.endsWith(".residual");
  button.classList.toggle("cut", isOff(off, part));
  button.ariaPressed = state.isCutting ? String(!off.includes(part)) : null;
  const what = off.includes(part) ? "Off" : "On";
  const opens = isShortcut ? `${label}: the token passes here as it is, and what was found is added` : label;
  button.title = state.isCutting ? `${what}. Press to switch it ${what === "Off" ? "on" : "off"}.` : opens;
}

// Hides what the story hasn't come to yet.
function grow(page, map) {
  const { $ } = page;
  const { plan } = map;
  const reach = reachOf(plan, reached(page));
  for (const { a, element } of map.captions) element.classList.toggle("hidden", a > reach);
  const isTold = (part = "") => !part.includes(".mlp") || hasReached(page, "mlp");
  for (const { a, w, part, step, button } of map.parts) {
    const isEarly = a + w / 2 > reach || !isTold(part) || (step !== undefined && !hasReached(page, "layers"));
    button.classList.toggle("hidden", isEarly);
  }
  for (const { path, parts } of map.lines) path.classList.toggle("hidden", !parts.every(isTold));
  const { style } = $(".map .inner");
  style.width = `${Math.min(plan.size[0], reach)}px`;
  style.marginTop = reach > EDGE.begin ? "" : `${WITHOUT_BLOCKS - plan.across}px`; // all that is shown lies on one line
  $(".map-toolbar").classList.toggle("hidden", !hasReached(page, "what-if"));
  $(".map-legend").classList.toggle("hidden", !hasReached(page, "attention"));
  $(".map-legend span").classList.toggle("hidden", !hasReached(page, "layers"));
}

function drawMap(page, map, scene) {
  const { $, $$, state } = page;
  const { off } = state.changes;
  for (const input of $$('[name="cutting"]')) input.checked = (input.value === "cut") === state.isCutting;
  for (const button of $$(".map-toolbar [data-to]")) {
    button.ariaCurrent = button.dataset.to === state.station ? "true" : null;
  }
  $(".map").classList.toggle("cutting", state.isCutting);
  for (const { path, parts } of map.lines) {
    const isCut = parts.some((part) => isOff(off, part));
    path.classList.toggle("cut", isCut);
  }
  map.frames.forEach((frame, layer) => frame.classList.toggle("cut", !scene.isBlockOn(layer)));
  for (const part of map.parts) drawPart(page, part);
  grow(page, map);
  drawThumbnails(page, scene, map.parts);
}

// walk(station, {layer, head}): leaves the tour for a part.
export function buildMap(page, walk) {
  const { $, $$, state, drawers } = page;
  let map = null; // how it is laid out, and its elements; none before it has a width

  const cut = (part) => change(page, { off: toggled(state.changes.off, part) });

  function press({ part, to, layer, head }) {
    if (!state.isCutting) walk(to, { layer, head });
    else if (part) cut(part);
  }

  for (const input of $$('[name="cutting"]')) {
    input.onchange = () => {
      state.isCutting = input.value === "cut";
      draw(page);
    };
  }
  for (const button of $$(".map-toolbar [data-to]")) button.onclick = () => walk(button.dataset.to);
  $(".map").addEventListener("keydown", (event) => walkWith(event, map.parts, cut));
  drawers.push((scene) => {
    const width = Math.floor($(".map").clientWidth);
    if (width && map?.width !== width) map = lay(page, width, press);
    if (map) drawMap(page, map, scene);
  });
  new ResizeObserver(() => draw(page)).observe($(".map"));
}
