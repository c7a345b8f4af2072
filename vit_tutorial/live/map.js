// The whole model in one picture, always there: what goes where, how much of it, and what is off. A click on a part
// opens its station, or cuts the part. Lying, it runs from left to right; upright, on a phone, from the top down.

import { toggled } from "./changes.js";
import { clamp, hasModifier, make } from "./dom.js";
import { AFTER, BEFORE, EDGE, frameOf, linesOf, partsOfMap, planOf, reachOf } from "./map_layout.js";
import { isTold, reached } from "./story.js";
import { drawThumbnails } from "./thumbnails.js";

const SVG = "http://www.w3.org/2000/svg";

function captionsOf(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const words = { ...BEFORE, answer: end + AFTER.answer };
  return Object.entries(words).map(([textContent, a]) => {
    const element = make("span", { className: "caption", textContent, ariaHidden: "true" });
    const [x, y] = plan.place(a, plan.isUpright ? 64 : 38);
    Object.assign(element.style, { left: `${x}px`, top: `${y}px` });
    return { a, element };
  });
}

function buttonOf(page, plan, { a, c, w, h, text, part, label, to, layer, head, look, step }) {
  const button = make("button", { type: "button", className: `part ${look ?? ""}`, tabIndex: -1 });
  const [x, y] = plan.place(a, c);
  Object.assign(button.style, { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px` });
  if (["picture", "patches", "tokens"].includes(look) || head !== undefined) button.append(make("canvas"));
  button.append(make("span", { textContent: text }));
  button.setAttribute("aria-label", label);
  Object.assign(button.dataset, { to }, part && { part }, step !== undefined && { step });
  button.onclick = () => {
    if (page.state.isCutting && part) page.cut(part);
    else page.walk(to, { layer, head });
  };
  return button;
}

// Lays the map out for the width that there is.
function lay(page) {
  const { $, sizes, map } = page;
  const width = Math.floor($(".map").clientWidth);
  if (!width || map.width === width) return;
  const plan = planOf(sizes, width);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("width", String(plan.size[0]));
  svg.setAttribute("height", String(plan.size[1]));
  const lines = linesOf(plan).map((line) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", line.d);
    svg.append(path);
    return { ...line, path };
  });
  const frames = plan.blocks.map((layer) => {
    const frame = document.createElementNS(SVG, "rect");
    svg.prepend(frame);
    for (const [name, value] of Object.entries(frameOf(plan, layer))) frame.setAttribute(name, String(value));
    return frame;
  });
  const parts = partsOfMap(plan).map((part) => ({ ...part, button: buttonOf(page, plan, part) }));
  parts[0].button.tabIndex = 0; // arrow keys lead to the others
  const inner = make("div", { className: plan.isUpright ? "inner upright" : "inner" });
  Object.assign(inner.style, { width: `${plan.size[0]}px`, height: `${plan.size[1]}px` });
  const captions = captionsOf(plan);
  Object.assign(map, { width, plan, lines, frames, parts, captions });
  inner.append(svg, ...captions.map(({ element }) => element), ...parts.map(({ button }) => button));
  $(".map").replaceChildren(inner);
}

function walkWith(page, event) {
  const buttons = page.map.parts.map(({ button }) => button).filter((button) => !button.matches(".hidden"));
  const at = buttons.indexOf(event.target);
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const ends = { Home: 0, End: buttons.length - 1 };
  if (at < 0 || hasModifier(event)) return;
  const { part } = event.target.dataset;
  if (["x", "Delete"].includes(event.key) && part) page.cut(part);
  if (!by && !(event.key in ends)) return;
  event.preventDefault();
  const next = ends[event.key] ?? clamp(at + by, 0, buttons.length - 1);
  buttons[at].tabIndex = -1;
  buttons[next].tabIndex = 0;
  buttons[next].focus();
}

export function buildMap(page) {
  const { $, $$, state } = page;
  page.cut = (part) => {
    const { off } = state.changes;
    const top = () => $(".map").getBoundingClientRect().top;
    const was = top();
    page.change({ off: toggled(off, part) }).then(() => window.scrollBy(0, top() - was)); // it stays under the pointer
  };
  for (const input of $$('[name="cutting"]')) {
    input.onchange = () => {
      state.isCutting = input.value === "cut";
      page.draw();
    };
  }
  for (const button of $$(".also [data-to]")) button.onclick = () => page.walk(button.dataset.to);
  $(".map").addEventListener("keydown", (event) => walkWith(page, event));
  lay(page);
  new ResizeObserver(() => {
    lay(page);
    page.draw();
  }).observe($(".map"));
}

// Whether a part, or one that it is in, is off; not a shortcut in a block that is: tokens pass such a block.
export function isOff(off, part) {
  if (part.endsWith(".residual")) return off.includes(part) && !off.includes(part.split(".", 2).join("."));
  return off.some((other) => part === other || part.startsWith(`${other}.`));
}

function drawPart({ state }, { button, part, label, to, layer, head }) {
  const { off } = state.changes;
  const isChosen = (layer ?? state.layer) === state.layer && (head ?? state.head) === state.head;
  const isWhole = part && !/(attention|mlp|heads\.\d+)$/.test(part); // a block or a shortcut, which has no station
  const isHere = to === state.station && isChosen && !isWhole;
  button.ariaCurrent = isHere ? "true" : null;
  if (!part) return;
  const isShortcut = part.endsWith(".residual");
  button.classList.toggle("cut", isOff(off, part));
  button.ariaPressed = state.isCutting ? String(!off.includes(part)) : null;
  const what = off.includes(part) ? "Off" : "On";
  const opens = isShortcut ? `${label}: the token passes here as it is, and what was found is added` : label;
  button.title = state.isCutting ? `${what}. Click to switch it ${what === "Off" ? "on" : "off"}.` : opens;
}

// Hides what the story hasn't come to yet.
function grow(page) {
  const { $, map } = page;
  const { plan } = map;
  const reach = reachOf(plan, reached(page));
  for (const { a, element } of map.captions) element.classList.toggle("hidden", a > reach);
  for (const { a, w, h, step, button } of map.parts) {
    const end = a + (plan.isUpright ? h : w) / 2;
    button.classList.toggle("hidden", end > reach || (step !== undefined && !isTold(page, "layers")));
  }
  const inner = $(".map .inner");
  const [width, height] = plan.size;
  const beyond = Math.max(0, (plan.isUpright ? height : width) - reach);
  inner.style.height = `${plan.isUpright ? height - beyond : height}px`;
  inner.style.clipPath = beyond && !plan.isUpright ? `inset(0 ${beyond}px 0 0)` : "";
  inner.style.overflow = plan.isUpright ? "hidden" : "";
  const hasBlocks = plan.isUpright || reach > EDGE.begin; // else all that is shown lies on one line
  inner.style.marginTop = hasBlocks ? "" : `${52 - plan.across}px`;
  $(".also").classList.toggle("hidden", !isTold(page, "what-if"));
  $(".key").classList.toggle("hidden", !isTold(page, "attention"));
  $(".key span").classList.toggle("hidden", !isTold(page, "layers"));
}

export function drawMap(page, scene) {
  const { $$, map, state } = page;
  if (!map.parts) return;
  const { off } = state.changes;
  for (const input of $$('[name="cutting"]')) input.checked = (input.value === "cut") === state.isCutting;
  for (const button of $$(".also [data-to]")) {
    button.ariaCurrent = button.dataset.to === state.station ? "true" : null;
  }
  page.$(".map").classList.toggle("cutting", state.isCutting);
  for (const { path, parts } of map.lines) {
    path.classList.toggle(
      "cut",
      parts.some((part) => isOff(off, part)),
    );
  }
  map.frames.forEach((frame, layer) => frame.classList.toggle("cut", !scene.isBlockOn(layer)));
  for (const part of map.parts) drawPart(page, part);
  grow(page);
  drawThumbnails(page, scene);
}
