// What never changes: the model, its pictures, its sizes by the letters of the lessons, and what things are called.

import { bytes, pixelsOf } from "./dom.js";
import { unpack, unpackStates } from "./model.js";

const GREY = Uint32Array.from({ length: 256 }, (_, level) => ((255 << 24) | (0x010101 * level)) >>> 0);

function sizesOf(config) {
  const [C, H, W] = config.shape;
  const [rows, columns] = config.grid;
  const { dim: D, depth: L, num_heads: h, mlp_dim: M, tokens: T, patches: N, prefix } = config;
  return { C, H, W, rows, columns, D, L, h, M, T, N, prefix, d: D / h, length: (C * H * W) / N };
}

function samplesOf({ values, count, white }) {
  const levels = bytes(values);
  const size = levels.length / count;
  return Array.from({ length: count }, (_, i) =>
    Float32Array.from(levels.subarray(i * size, (i + 1) * size), (v) => v / white),
  );
}

function namesOf({ prefix, columns }) {
  const at = (token) => [Math.floor((token - prefix) / columns), (token - prefix) % columns]; // row, column
  const tokenName = (token) => (token < prefix ? "class token" : `patch ${token - prefix}`);
  const theName = (token) => `${token < prefix ? "the " : ""}${tokenName(token)}`;
  const placeOf = (token) => (token < prefix ? "before the patches" : `row ${at(token)[0]}, column ${at(token)[1]}`);
  return { at, tokenName, theName, placeOf };
}

// What the page's data say, unpacked.
export function factsOf(data) {
  const sizes = sizesOf(data.config);
  const { C, rows, columns, prefix } = sizes;
  return Object.freeze({
    ...data,
    ...namesOf(sizes),
    sizes,
    samples: samplesOf(data.samples),
    white: data.samples.white, // how many steps there are from black to white
    weights: unpack(data.weights),
    states: unpackStates(data.weights, data.states), // of the training, the first one noise
    id: data.weights.values.slice(-4000), // tells models apart
    isOfDigits: C === 1 && data.classes.every((name) => /^\d$/.test(name)),
    middle: prefix + Math.floor(rows / 2) * columns + Math.floor(columns / 2), // the patch in the middle
    pixels: { signed: pixelsOf(data.signed), heat: pixelsOf(data.heat), grey: GREY }, // colour maps
  });
}
