// The whole model in one picture, always there: what goes where, how much of it, and what is off. A click on a part
// opens its station, or cuts the part. Lying, it runs from left to right; upright, on a phone, from the top down.

import { clamp, hasModifier, make } from "../pages/page.js";
import { toggled } from "./changes.js";
import { drawLooks } from "./looks.js";
import { EDGE, frameOf, linesOf, partsOfMap, planOf, reachOf } from "./map_layout.js";
import { isTold, reached } from "./story.js";
import { isRead, streamOf } from "./stream.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDEST = 9; // pixels of the widest line

function captionsOf(plan) {
  const end = EDGE.begin + plan.blocks.length * plan.block;
  const words = { picture: 30, patches: 90, tokens: 150, answer: end + 122 };
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
  if (part) button.onpointerenter = () => point(page, part);
  button.onpointerleave = () => point(page, null);
  button.onclick = () => {
    const isSameMap = head !== undefined && page.state.station === "looks";
    if (!page.state.isCutting) page.walk(isSameMap ? "looks" : to, { layer, head });
    else if (part) page.cut(part);
    else sayUncut(page);
  };
  return button;
}

function sayUncut({ $, say }) {
  const text = "This can’t be cut: choose Open parts to open it.";
  $(".model .key").textContent = text;
  say(text);
}

// Lights up what a part consists of; null: nothing.
function point({ mapLines, mapFrames }, part) {
  for (const { path, parts } of mapLines) path.classList.toggle("pointed", parts.includes(part));
  mapFrames.forEach((frame, layer) => frame.classList.toggle("pointed", part === `blocks.${layer}`));
}

// Lays the map out for the width that there is.
function lay(page) {
  const { $, sizes } = page;
  const width = Math.floor($(".map").clientWidth);
  if (!width || page.mapWidth === width) return;
  page.mapWidth = width;
  const plan = planOf(sizes, width);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("width", String(plan.size[0]));
  svg.setAttribute("height", String(plan.size[1]));
  page.mapLines = linesOf(plan).map((line) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", line.d);
    path.dataset.of = line.of;
    svg.append(path);
    return { ...line, path };
  });
  page.mapFrames = plan.blocks.map((layer) => {
    const frame = document.createElementNS(SVG, "rect");
    svg.prepend(frame);
    for (const [name, value] of Object.entries(frameOf(plan, layer))) frame.setAttribute(name, String(value));
    return frame;
  });
  page.mapParts = partsOfMap(plan).map((part) => ({ ...part, button: buttonOf(page, plan, part) }));
  page.mapParts[0].button.tabIndex = 0; // arrow keys lead to the others
  const inner = make("div", { className: plan.isUpright ? "inner upright" : "inner" });
  Object.assign(inner.style, { width: `${plan.size[0]}px`, height: `${plan.size[1]}px` });
  page.mapDot = make("i", { className: "token-dot", ariaHidden: "true" }); // where the followed token is
  const captions = captionsOf(plan);
  Object.assign(page, { mapPlan: plan, mapCaptions: captions });
  inner.append(
    svg,
    ...captions.map(({ element }) => element),
    ...page.mapParts.map(({ button }) => button),
    page.mapDot,
  );
  $(".map").replaceChildren(inner);
}

function walkWith(page, event) {
  const buttons = page.mapParts.map(({ button }) => button).filter((button) => !button.matches(".hidden"));
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

// Moves the dot to the part whose station is open.
function moveDot(page) {
  const { $, state, sizes, config, mapParts, mapDot, mapAt, mapWidth } = page;
  const { station, layer, token } = state;
  const isHere = (part) =>
    part.to === station && (part.layer ?? layer) === layer && !("head" in part || "step" in part);
  const place = mapParts.find((part) => isHere(part) && !/(\d|residual)$/.test(part.part ?? ""));
  const isUnread = station === "head" && !isRead(config, token);
  mapDot.classList.toggle("hidden", !place || isUnread);
  mapDot.classList.toggle("of-class-token", token < sizes.prefix);
  if (!place) return;
  const { left, top, width, height } = place.button.style;
  if (mapAt !== `${station} ${layer}`) $(".map").scrollLeft = parseFloat(left) - mapWidth / 2;
  page.mapAt = `${station} ${layer}`;
  const { look, h } = place; // the dot covers no name: it stands in a picture's corner, beside a word, else above
  const [across, down] = look ? [-0.33, 0.42] : h < 28 ? [0.63, 0] : [0, -0.5];
  Object.assign(mapDot.style, {
    left: `calc(${left} + ${across} * ${width})`,
    top: `calc(${top} + ${down} * ${height})`,
  });
}

function keyOf(page) {
  const { $, state, theName } = page;
  if (!isTold(page, "attention")) return "";
  const lines = `Thick, blue lines: ${theName(state.token)} has large numbers there. Small squares: where it looks.`;
  const where = $(".map .upright") ? "Left" : "Below";
  return isTold(page, "layers") ? `${lines} ${where}: the answer so far.` : lines;
}

// Hides what the story hasn't come to yet.
function grow(page) {
  const { $, mapPlan: plan, mapCaptions, mapParts } = page;
  const reach = reachOf(plan, reached(page));
  for (const { a, element } of mapCaptions) element.classList.toggle("hidden", a > reach);
  for (const { a, w, h, step, button } of mapParts) {
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
}

export function drawMap(page, scene) {
  if (!page.mapParts) return;
  const { $$, state } = page;
  const { off } = state.changes;
  for (const input of $$('[name="cutting"]')) input.checked = (input.value === "cut") === state.isCutting;
  for (const button of $$(".also [data-to]")) {
    button.ariaCurrent = button.dataset.to === state.station ? "true" : null;
  }
  page.$(".map").classList.toggle("cutting", state.isCutting);
  page.$(".model .key").textContent = keyOf(page);
  const widths = streamOf(page, scene);
  for (const { path, of, parts } of page.mapLines) {
    path.classList.toggle(
      "cut",
      parts.some((part) => isOff(off, part)),
    );
    const share = of.endsWith("each") ? 0 : widths[of];
    path.style.strokeWidth = clamp(WIDEST * share, 1.2, WIDEST);
    path.style.setProperty("--share", `${35 + 60 * share}%`);
  }
  page.mapFrames.forEach((frame, layer) => frame.classList.toggle("cut", !scene.isBlockOn(layer)));
  for (const part of page.mapParts) drawPart(page, part);
  grow(page);
  moveDot(page);
  drawLooks(page, scene);
}
