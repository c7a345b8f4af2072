// One head's attention as a picture at some time: the tokens with their scores or weights, the chosen token's q, what
// flows from each token's v, and what it adds up to.

import { isLight, largestSize, rowOf } from "./cells.js";
import { cellBox, clamp, drawFrame, largest, sharpen } from "./dom.js";
import { drawPatch } from "./picker.js";

const MOST_TILE = 64; // pixels of a token's tile
const STRIP_HEIGHT = 22; // pixels: the height of a strip
const BETWEEN = 6; // pixels between a strip and the next one's label
const NUMBER = 24; // pixels that a number needs; in what is left of a tile around it, its patch is seen
const LEAST = 26; // pixels: on a smaller tile some numbers would have room, and others none
const RING = 0.14; // of a tile is enough for that
const ARRIVAL = 0.6; // of the time for a score, when q has come to the token that it is compared with
const LABEL = 1.3; // times the size of letters: the height of a label above a strip
const BAR = 10; // pixels: the width of the bar in which weights add up

// Where everything lies, in pixels of the page.
function layoutOf(canvas, { rows, columns, prefix }) {
  const width = canvas.clientWidth;
  const text = parseFloat(getComputedStyle(canvas).fontSize); // of letters
  const label = LABEL * text;
  const room = 0.42 * window.innerHeight; // of a screen that is low
  const tile = Math.min((0.42 * width) / Math.max(rows, columns), room / (rows + prefix), MOST_TILE);
  const top = prefix ? tile + 8 : 0;
  const height = Math.max(top + rows * tile, 4 * (label + STRIP_HEIGHT + BETWEEN));
  const left = columns * tile + 0.16 * width; // of the strips
  const tileOf = (token) => {
    const n = token - prefix;
    return n < 0 ? [0, 0] : [(n % columns) * tile, top + Math.floor(n / columns) * tile];
  };
  const flow = { top: 2 * label + 2 * STRIP_HEIGHT + 20, bottom: height - 2 };
  return { width, height, tile, tileOf, left, strip: width - left, flow, text, label };
}

// The token whose tile an event points at; null: none.
export function tokenAt(canvas, sizes, { clientX, clientY }) {
  const { left, top } = canvas.getBoundingClientRect();
  const { tile, tileOf } = layoutOf(canvas, sizes);
  const isIn = (token) => {
    const [x, y] = tileOf(token);
    return clientX - left >= x && clientX - left < x + tile && clientY - top >= y && clientY - top < y + tile;
  };
  return [...Array(sizes.T).keys()].find(isIn) ?? null;
}

// How far attention has come at some time, each part from 0 to 1: the scores, the softmax that makes weights of them,
// and the values that are added.
export function progressOf(time, weights) {
  const T = weights.length;
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]); // the largest weight flows first
  const scored = (t) => clamp(time - t, 0, 1);
  const valueAdded = (t) => clamp(time - T - 1 - order.indexOf(t), 0, 1);
  const acting = time <= T ? [...weights.keys()] : order; // one after the other
  const current = acting[Math.ceil(time <= T ? time : time - T - 1) - 1] ?? null; // now; null: none
  return { scored, softmaxed: clamp(time - T, 0, 1), valueAdded, current, isTaking: time > T + 1 };
}

// A text, made narrower where it has no room.
function drawText({ context, layout }, text, x, y, { width, colour, align = "left", bold = false }) {
  context.font = `${bold ? "600 " : ""}${layout.text}px system-ui, sans-serif`;
  Object.assign(context, { fillStyle: colour, textAlign: align, textBaseline: "middle" });
  context.fillText(text, x, y, width);
}

const cssOf = (pixel) => `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;

// Numbers as coloured cells beside each other.
function drawStrip(context, values, most, pixels, [x, y, width, height]) {
  values.forEach((value, i) => {
    context.fillStyle = cssOf(pixels[Math.round(127.5 + 127.5 * clamp(value / most, -1, 1))]);
    const [left, , w] = cellBox({ width, height }, [1, values.length], i);
    context.fillRect(x + left, y, w, height);
  });
}

// What follows draws a part of a stage each: {context, page, scene, layout, progress}.

// A token's tile: its patch.
function drawTile(stage, token) {
  const { context, page, layout } = stage;
  const { colourOf, model } = page;
  const { tile, tileOf } = layout;
  const [x, y] = tileOf(token);
  const box = [x + 1, y + 1, tile - 2, tile - 2];
  if (token >= model.sizes.prefix) {
    drawPatch(page, context, token - model.sizes.prefix, box);
    return;
  }
  context.fillStyle = colourOf("--fill");
  context.fillRect(...box);
  drawText(stage, "CLS", x + tile / 2, y + tile / 2, { width: tile, colour: colourOf("--c"), align: "center" });
}

// Within a tile: its token's score, or its weight once scores are softmaxed.
function drawNumber(stage, token) {
  const { context, page, scene, layout, progress } = stage;
  if (progress.scored(token) < ARRIVAL) return; // the question is on its way
  const { tile, tileOf } = layout;
  const { scores, weights } = scene;
  const [score, weight] = [scores[token], weights[token]];
  const isWeight = progress.softmaxed > 0.5;
  const level = isWeight ? (255 * weight) / largest(weights) : 127.5 + (127.5 * score) / largestSize(scores);
  const pixel = page.model.pixels[isWeight ? "heat" : "signed"][Math.round(level)];
  const ring = clamp((tile - NUMBER) / 2, 2, RING * tile);
  const edge = ring + 0.3 * tile * Math.sin(Math.PI * progress.softmaxed); // it shrinks, and comes back
  const [x, y] = tileOf(token);
  context.fillStyle = cssOf(pixel);
  context.fillRect(x + edge, y + edge, tile - 2 * edge, tile - 2 * edge);
  const text = isWeight ? `${Math.round(100 * weight)}%` : score.toFixed(1).replace("-", "−");
  if (tile < LEAST) return;
  const colour = isLight(pixel) ? "#000000" : "#ffffff";
  drawText(stage, text, x + tile / 2, y + tile / 2, { width: tile - 2 * ring, colour, align: "center" });
}

// Where each token's weight lies in the bar of all of them, [top, height]: in the order of the tokens.
function segmentsOf(weights, { top, bottom }) {
  let y = top;
  return Array.from(weights, (weight) => {
    const segment = [y, weight * (bottom - top)];
    y += segment[1];
    return segment;
  });
}

// The flows, as wide as the weights, into the bar in which they add up to 1.
function drawFlows({ context, page, scene, layout, progress }) {
  const { tile, tileOf, left, flow } = layout;
  Object.assign(context, { strokeStyle: page.colourOf("--v"), fillStyle: page.colourOf("--v") });
  segmentsOf(scene.weights, flow).forEach(([top, height], token) => {
    const valueAdded = progress.valueAdded(token);
    if (!valueAdded) return;
    const [x, y] = tileOf(token).map((side) => side + tile / 2);
    const end = top + height / 2;
    const middle = (x + left) / 2;
    const length = 1.3 * Math.hypot(left - x, end - y); // about
    context.lineWidth = Math.max(height, 0.5);
    context.globalAlpha = 0.5;
    context.setLineDash(valueAdded < 1 ? [valueAdded * length, 9 * length] : []);
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(middle, y, middle, end, left, end);
    context.stroke();
    context.globalAlpha = 1;
    context.fillRect(left, top, BAR * valueAdded, Math.max(height - 0.5, 0.5));
  });
  context.setLineDash([]);
}

// A copy of q on its way to the token whose k it is compared with.
function drawQuestion({ context, page, scene, layout, progress }) {
  const way = clamp(progress.scored(progress.current) / ARRIVAL, 0, 1);
  if (way === 0 || way === 1) return;
  const { tile, tileOf, left, label } = layout;
  const [x, y] = tileOf(progress.current);
  const at = [left + way * (x - left), label + way * (y + tile / 2 - label), tile, BAR];
  drawStrip(context, scene.q, largestSize(scene.q), page.model.pixels.signed, at);
  context.strokeStyle = page.colourOf("--q");
  context.strokeRect(...at);
}

// A token's q, k or v with its name above it; place: how many lists are above.
function drawList(stage, kind, token, place) {
  const { context, page, scene, layout } = stage;
  const { left, strip, label } = layout;
  const rows = scene[kind]; // of q, the chosen token's alone
  const values = kind === "q" ? rows : rowOf(rows, token, scene.q.length);
  const y = place * (label + STRIP_HEIGHT + BETWEEN);
  const name = `${kind} of ${page.model.tokenName(token)}`;
  drawText(stage, name, left, y + label / 2, { colour: page.colourOf(`--${kind}`), bold: true, width: strip });
  drawStrip(context, values, largestSize(rows), page.model.pixels.signed, [left, y + label, strip, STRIP_HEIGHT]);
}

// From a token's tile to its k.
function drawLink({ context, page, layout }, token, place) {
  const { tile, tileOf, left, label } = layout;
  const [x, y] = tileOf(token);
  Object.assign(context, { strokeStyle: page.colourOf("--k"), lineWidth: 1.5 });
  context.beginPath();
  context.moveTo(x + tile, y + tile / 2);
  context.lineTo(left - 4, place * (label + STRIP_HEIGHT + BETWEEN) + label + STRIP_HEIGHT / 2);
  context.stroke();
}

// The chosen token's q, and below it the k of tokens that are compared with it, or the v of the one that is added.
function drawLists(stage) {
  const { scene, progress } = stage;
  drawList(stage, "q", scene.token, 0);
  const kind = progress.isTaking ? "v" : "k";
  scene.listed.forEach((token, i) => {
    drawList(stage, kind, token, i + 1);
    frameTile(stage, token, `--${kind}`);
    if (scene.listed.length > 1) drawLink(stage, token, i + 1);
  });
}

// What has flowed in so far, added up.
function drawSums(stage) {
  const { context, page, scene, layout, progress } = stage;
  if (!progress.isTaking) return; // nothing has flowed in
  const { v, weights, flows } = scene;
  const sums = new Float64Array(scene.sums.length);
  weights.forEach((weight, token) => {
    const part = flows * progress.valueAdded(token) * weight;
    for (let i = 0; i < sums.length; i++) sums[i] += part * v[token * sums.length + i];
  });
  const { top, bottom } = layout.flow;
  const [left, width] = [layout.left + 1.8 * BAR, layout.strip - 1.8 * BAR];
  const name = `${page.model.tokenName(scene.token)} takes`;
  drawText(stage, name, left, top + layout.label / 2, { colour: page.colourOf("--text"), bold: true, width });
  drawStrip(context, sums, largestSize(scene.sums), page.model.pixels.signed, [
    left,
    top + layout.label,
    width,
    bottom - top - layout.label,
  ]);
}

function frameTile({ context, page, layout }, token, colour) {
  const box = [...layout.tileOf(token), layout.tile, layout.tile];
  drawFrame(context, box, page.colourOf(colour), 3 / (window.devicePixelRatio || 1));
}

// scene: {prefix, token, guessed, listed, q (d), k and v (T, d), scores and weights (T), sums (d)}; flows: 0 where the
// head is off; guessed: a token or null; listed: the tokens whose k or v is shown.
export function drawStage(page, canvas, scene, time) {
  const layout = layoutOf(canvas, page.model.sizes);
  canvas.style.height = `${layout.height}px`;
  const context = sharpen(canvas);
  if (!context) return;
  const ratio = canvas.width / layout.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  const progress = progressOf(time, scene.weights);
  const stage = { context, page, scene, layout, progress };
  scene.weights.forEach((_, token) => drawTile(stage, token));
  if (scene.flows) drawFlows(stage);
  scene.weights.forEach((_, token) => drawNumber(stage, token));
  frameTile(stage, scene.token, scene.token < scene.prefix ? "--class" : "--query");
  drawLists(stage);
  if (scene.guessed !== null) frameTile(stage, scene.guessed, "--position");
  drawSums(stage);
  if (!progress.softmaxed) drawQuestion(stage);
  context.setTransform(1, 0, 0, 1, 0, 0);
}
