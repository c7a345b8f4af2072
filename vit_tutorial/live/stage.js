// One head's attention as a picture at a moment: the tokens with their scores or shares, the asking token's q, what flows
// from each token's v, and what it adds up to.

import { isLight, largestSize, rowOf } from "./cells.js";
import { cellBox, clamp, drawFrame, largest, sharpen } from "./dom.js";
import { drawPatch } from "./picker.js";

const MOST_TILE = 64; // pixels of a token's tile
const STRIP_HEIGHT = 22; // pixels: the height of a strip
const NUMBER = 32; // pixels that a number needs; in what is left of a tile around it, its patch is seen
const RING = 0.14; // of a tile is enough for that
const ARRIVAL = 0.6; // of a beat, when q has come to the token that is asked
const LABEL = 1.3; // times the size of letters: the height of a label above a strip
const BAR = 10; // pixels: the width of the bar in which shares add up

// Where everything lies, in pixels of the page.
function layoutOf(canvas, { rows, columns, prefix }) {
  const width = canvas.clientWidth;
  const text = parseFloat(getComputedStyle(canvas).fontSize); // of letters
  const label = LABEL * text;
  const room = 0.42 * window.innerHeight; // of a screen that is low
  const tile = Math.min((0.42 * width) / Math.max(rows, columns), room / (rows + prefix), MOST_TILE);
  const top = prefix ? tile + 8 : 0;
  const height = Math.max(top + rows * tile, 160);
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

// The moment in its parts, each from 0 to 1: which tokens have answered, how far scores are shares, which have given.
export function momentOf(beat, shares) {
  const T = shares.length;
  const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]); // the largest share flows first
  const asked = (t) => clamp(beat - t, 0, 1);
  const given = (t) => clamp(beat - T - 1 - order.indexOf(t), 0, 1);
  const current = beat <= T ? Math.ceil(beat) - 1 : order[Math.ceil(beat - T - 1) - 1]; // the token that acts now
  return { asked, squeezed: clamp(beat - T, 0, 1), given, current, isAsking: beat <= T };
}

// The first of some texts that has room; none: without it.
function drawText({ context, layout }, texts, x, y, { width = Infinity, colour, align = "left", bold = false }) {
  context.font = `${bold ? "600 " : ""}${layout.text}px system-ui, sans-serif`;
  const text = texts.find((one) => context.measureText(one).width <= width);
  if (!text) return;
  Object.assign(context, { fillStyle: colour, textAlign: align, textBaseline: "middle" });
  context.fillText(text, x, y);
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

// What follows draws a part of a stage each: {context, page, scene, layout, moment}.

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
  drawText(stage, ["CLS"], x + tile / 2, y + tile / 2, { width: tile, colour: colourOf("--c"), align: "center" });
}

// Within a tile: its token's score, or its share once scores are squeezed.
function drawNumber(stage, token) {
  const { context, page, scene, layout, moment } = stage;
  if (moment.asked(token) < ARRIVAL) return; // the question is on its way
  const { tile, tileOf } = layout;
  const [score, share] = [scene.scores[token], scene.shares[token]];
  const isShare = moment.squeezed > 0.5;
  const heat = Math.min(255, (255 * share) / largest(scene.shares.subarray(scene.prefix)));
  const level = isShare ? heat : 127.5 + (127.5 * score) / largestSize(scene.scores);
  const pixel = page.model.pixels[isShare ? "heat" : "signed"][Math.round(level)];
  const ring = clamp((tile - NUMBER) / 2, 2, RING * tile);
  const edge = ring + 0.3 * tile * Math.sin(Math.PI * moment.squeezed); // it is squeezed, and comes back
  const [x, y] = tileOf(token);
  context.fillStyle = cssOf(pixel);
  context.fillRect(x + edge, y + edge, tile - 2 * edge, tile - 2 * edge);
  const rounded = [score.toFixed(1), String(Math.round(score) + 0)].map((text) => text.replace("-", "−"));
  const texts = isShare ? [`${Math.round(100 * share)}%`] : rounded;
  const colour = isLight(pixel) ? "#000000" : "#ffffff";
  drawText(stage, texts, x + tile / 2, y + tile / 2, { width: tile, colour, align: "center" });
}

// Where each token's share lies in the bar of all of them, [top, height]: in the order of the tokens.
function segmentsOf(shares, { top, bottom }) {
  let y = top;
  return Array.from(shares, (share) => {
    const segment = [y, share * (bottom - top)];
    y += segment[1];
    return segment;
  });
}

// The flows, as wide as the shares, into the bar in which they add up to 1.
function drawFlows({ context, page, scene, layout, moment }) {
  const { tile, tileOf, left, flow } = layout;
  Object.assign(context, { strokeStyle: page.colourOf("--v"), fillStyle: page.colourOf("--v") });
  segmentsOf(scene.shares, flow).forEach(([top, height], token) => {
    const given = moment.given(token);
    const [x, y] = tileOf(token).map((side) => side + tile / 2);
    const end = top + height / 2;
    const middle = (x + left) / 2;
    const length = 1.3 * Math.hypot(left - x, end - y); // about
    context.lineWidth = Math.max(height, 0.5);
    context.globalAlpha = 0.5;
    context.setLineDash(given < 1 ? [given * length, 9 * length] : []);
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(middle, y, middle, end, left, end);
    if (given) context.stroke();
    context.globalAlpha = 1;
    context.fillRect(left, top, BAR * moment.squeezed, Math.max(height - 0.5, 0.5));
  });
  context.setLineDash([]);
}

// A copy of q on its way to the token that is asked.
function drawQuestion({ context, page, scene, layout, moment }) {
  const way = clamp(moment.asked(moment.current) / ARRIVAL, 0, 1);
  if (way === 0 || way === 1) return;
  const { tile, tileOf, left, label } = layout;
  const [x, y] = tileOf(moment.current);
  const at = [left + way * (x - left), label + way * (y + tile / 2 - label), tile, BAR];
  drawStrip(context, scene.q, largestSize(scene.q), page.model.pixels.signed, at);
  context.strokeStyle = page.colourOf("--q");
  context.strokeRect(...at);
}

// The asking token's q, and the k of the token that is asked, or the v of the one that gives.
function drawLists(stage) {
  const { context, page, scene, layout, moment } = stage;
  const { left, strip, label } = layout;
  const { q, k, v, token } = scene;
  const { current, isAsking } = moment;
  const draw = (name, values, y, colour, most) => {
    drawText(stage, [name], left, y + label / 2, { colour: page.colourOf(colour), bold: true, width: strip });
    drawStrip(context, values, most, page.model.pixels.signed, [left, y + label, strip, STRIP_HEIGHT]);
  };
  draw(`q of ${page.model.tokenName(token)}`, q, 0, "--q", largestSize(q));
  if (!(current >= 0)) return;
  const [name, rows, colour] = isAsking ? ["k", k, "--k"] : ["v", v, "--v"];
  const whose = `${name} of ${page.model.tokenName(current)}`;
  draw(whose, rowOf(rows, current, q.length), label + STRIP_HEIGHT + 8, colour, largestSize(rows));
}

// What has flowed in so far, added up.
function drawSums(stage) {
  const { context, page, scene, layout, moment } = stage;
  if (moment.isAsking) return; // nothing flows yet
  const { v, shares, flows } = scene;
  const sums = new Float64Array(scene.sums.length);
  shares.forEach((share, token) => {
    const part = flows * moment.given(token) * share;
    for (let i = 0; i < sums.length; i++) sums[i] += part * v[token * sums.length + i];
  });
  const { top, bottom } = layout.flow;
  const [left, width] = [layout.left + 1.8 * BAR, layout.strip - 1.8 * BAR];
  drawText(stage, ["takes"], left, top + layout.label / 2, { colour: page.colourOf("--text"), bold: true });
  drawStrip(context, sums, largestSize(scene.sums), page.model.pixels.signed, [
    left,
    top + layout.label,
    width,
    bottom - top - layout.label,
  ]);
}

function drawFrames({ context, page, scene, layout }) {
  const { token, guess, prefix } = scene;
  const frame = (one, colour) => {
    const box = [...layout.tileOf(one), layout.tile, layout.tile];
    drawFrame(context, box, page.colourOf(colour), 3 / (window.devicePixelRatio || 1));
  };
  frame(token, token < prefix ? "--class" : "--query");
  if (guess !== null) frame(guess, "--position");
}

// scene: {prefix, token, guess, q (d), k and v (T, d), scores and shares (T), sums (d), flows: 0 where the head is off}.
export function drawStage(page, canvas, scene, beat) {
  const layout = layoutOf(canvas, page.model.sizes);
  canvas.style.height = `${layout.height}px`;
  const context = sharpen(canvas);
  if (!context) return;
  const ratio = canvas.width / layout.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  const moment = momentOf(beat, scene.shares);
  const stage = { context, page, scene, layout, moment };
  scene.shares.forEach((_, token) => drawTile(stage, token));
  if (scene.flows) drawFlows(stage);
  scene.shares.forEach((_, token) => drawNumber(stage, token));
  drawFrames(stage);
  drawLists(stage);
  drawSums(stage);
  if (moment.isAsking) drawQuestion(stage);
  context.setTransform(1, 0, 0, 1, 0, 0);
}
