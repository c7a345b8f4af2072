// One head's attention as a picture at a moment: the tokens with their scores or shares, the asking token's q, what flows
// from each token's v, and what it adds up to.

import { isLight, largestSize, rowOf } from "./cells.js";
import { cellBox, clamp, drawFrame, largest, sharpen } from "./dom.js";
import { drawPatch } from "./picker.js";

const MOST_TILE = 64; // pixels of a token's tile
const TEXT = 14; // pixels of letters
const STRIP_HEIGHT = 22; // pixels: the height of a strip
const NUMBER = 32; // pixels that a number needs; in what is left of a tile around it, its patch is seen
const RING = 0.14; // of a tile is enough for that
const ARRIVAL = 0.6; // of a beat, when q has come to the token that is asked

// Where everything lies, in pixels of the page.
export function layoutOf(width, { rows, columns, prefix }) {
  const room = 0.42 * window.innerHeight; // of a screen that is low
  const tile = Math.min((0.42 * width) / Math.max(rows, columns), room / (rows + prefix), MOST_TILE);
  const top = prefix ? tile + 8 : 0;
  const height = Math.max(top + rows * tile, 160);
  const left = columns * tile + 0.16 * width; // of the strips
  const tileOf = (token) => {
    const n = token - prefix;
    return n < 0 ? [0, 0] : [(n % columns) * tile, top + Math.floor(n / columns) * tile];
  };
  return { width, height, tile, tileOf, left, strip: width - left, flow: { top: 100, bottom: height - 2 } };
}

// The token whose tile an event points at; null: none.
export function tokenAt(canvas, { rows, columns, prefix, T }, { clientX, clientY }) {
  const { left, top, width } = canvas.getBoundingClientRect();
  const { tile, tileOf } = layoutOf(width, { rows, columns, prefix });
  const isIn = (token) => {
    const [x, y] = tileOf(token);
    return clientX - left >= x && clientX - left < x + tile && clientY - top >= y && clientY - top < y + tile;
  };
  return [...Array(T).keys()].find(isIn) ?? null;
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

function drawText(context, text, x, y, { width = Infinity, colour, align = "left", bold = false }) {
  context.font = `${bold ? "600 " : ""}${TEXT}px system-ui, sans-serif`;
  if (context.measureText(text).width > width) return;
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

// A token's tile: its patch.
function drawTile(context, page, { tile, tileOf }, token) {
  const { colourOf, sizes } = page;
  const [x, y] = tileOf(token);
  const box = [x + 1, y + 1, tile - 2, tile - 2];
  if (token >= sizes.prefix) {
    drawPatch(page, context, token - sizes.prefix, box);
    return;
  }
  context.fillStyle = colourOf("--fill");
  context.fillRect(...box);
  drawText(context, "CLS", x + tile / 2, y + tile / 2, { width: tile, colour: colourOf("--c"), align: "center" });
}

// Within a tile: its token's score, or its share once scores are squeezed.
function drawNumber(context, { pixels }, { scores, shares }, { tile, tileOf }, moment, token, { most, mostShare }) {
  if (moment.asked(token) < ARRIVAL) return; // the question is on its way
  const [x, y] = tileOf(token);
  const isShare = moment.squeezed > 0.5;
  const level = isShare ? Math.min(255, (255 * shares[token]) / mostShare) : 127.5 + (127.5 * scores[token]) / most;
  const pixel = pixels[isShare ? "heat" : "signed"][Math.round(level)];
  const ring = clamp((tile - NUMBER) / 2, 2, RING * tile);
  const edge = ring + 0.3 * tile * Math.sin(Math.PI * moment.squeezed); // it is squeezed, and comes back
  context.fillStyle = cssOf(pixel);
  context.fillRect(x + edge, y + edge, tile - 2 * edge, tile - 2 * edge);
  const text = isShare ? `${Math.round(100 * shares[token])}%` : scores[token].toFixed(1).replace("-", "−");
  const colour = isLight(pixel) ? "#000000" : "#ffffff";
  drawText(context, text, x + tile / 2, y + tile / 2, { width: tile, colour, align: "center" });
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
function drawFlows(context, page, { shares }, layout, moment) {
  const { tile, tileOf, left, flow } = layout;
  context.strokeStyle = page.colourOf("--v");
  segmentsOf(shares, flow).forEach(([top, height], token) => {
    const given = moment.given(token);
    const [x, y] = tileOf(token).map((side) => side + tile / 2);
    const end = top + height / 2;
    const middle = (x + left) / 2;
    const length = 1.2 * Math.hypot(left - x, end - y);
    context.lineWidth = Math.max(height, 0.5);
    context.globalAlpha = 0.5;
    context.setLineDash([given * length, length]);
    context.beginPath();
    context.moveTo(x, y);
    context.bezierCurveTo(middle, y, middle, end, left, end);
    if (given) context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
    context.fillStyle = page.colourOf("--v");
    context.fillRect(left, top, 10 * moment.squeezed, Math.max(height - 0.5, 0.5));
  });
}

// A copy of q on its way to the token that is asked.
function drawQuestion(context, page, { q }, { tile, tileOf, left }, { asked, current }) {
  const way = clamp(asked(current) / ARRIVAL, 0, 1);
  if (way === 0 || way === 1) return;
  const [x, y] = tileOf(current);
  const at = [left + way * (x - left), 24 + way * (y + tile / 2 - 24), tile, 10];
  drawStrip(context, q, largestSize(q), page.pixels.signed, at);
  context.strokeStyle = page.colourOf("--q");
  context.strokeRect(...at);
}

function drawStrips(context, page, scene, layout, moment) {
  const { left, strip, flow } = layout;
  const { pixels, colourOf, tokenName } = page;
  const { q, k, v, shares, flows } = scene;
  const one = (label, values, y, colour, most = largestSize(values)) => {
    drawText(context, label, left, y + 8, { colour: colourOf(colour), bold: true, width: strip });
    drawStrip(context, values, most, pixels.signed, [left, y + 18, strip, STRIP_HEIGHT]);
  };
  one(`q of ${tokenName(scene.token)}`, q, 0, "--q");
  const { current, isAsking } = moment;
  if (current >= 0) {
    const [name, rows] = isAsking ? ["k", k] : ["v", v];
    const share = isAsking ? "" : ` × ${(100 * shares[current]).toFixed(1)} %`;
    const row = rowOf(rows, current, q.length);
    one(`${name} of ${tokenName(current)}${share}`, row, 48, isAsking ? "--k" : "--v", largestSize(rows));
  }
  const sums = new Float64Array(q.length);
  shares.forEach((share, t) => {
    const part = flows * moment.given(t) * share;
    for (let i = 0; i < sums.length; i++) sums[i] += part * v[t * sums.length + i];
  });
  const most = largestSize(scene.sums);
  drawText(context, "takes", left + 18, flow.top + 8, { colour: colourOf("--text"), bold: true, width: strip });
  drawStrip(context, sums, most, pixels.signed, [left + 18, flow.top + 18, strip - 18, flow.bottom - flow.top - 18]);
}

// scene: {prefix, token, guess, q (d), k and v (T, d), scores and shares (T), sums (d), flows: 0 where the head is off}.
export function drawStage(page, canvas, scene, beat) {
  const layout = layoutOf(canvas.clientWidth, page.sizes);
  canvas.style.height = `${layout.height}px`;
  const context = sharpen(canvas);
  if (!context) return;
  const ratio = canvas.width / layout.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  const { prefix, scores, shares, token, guess } = scene;
  const moment = momentOf(beat, shares);
  const scale = { most: largestSize(scores), mostShare: largest(shares.subarray(prefix)) };
  shares.forEach((_, t) => drawTile(context, page, layout, t));
  if (scene.flows) drawFlows(context, page, scene, layout, moment);
  shares.forEach((_, t) => drawNumber(context, page, scene, layout, moment, t, scale));
  const frame = (t, colour) => {
    drawFrame(context, [...layout.tileOf(t), layout.tile, layout.tile], page.colourOf(colour), 3 / ratio);
  };
  frame(token, token < prefix ? "--class" : "--query");
  if (guess !== null) frame(guess, "--position");
  drawStrips(context, page, scene, layout, moment);
  if (moment.isAsking) drawQuestion(context, page, scene, layout, moment);
  context.setTransform(1, 0, 0, 1, 0, 0);
}
