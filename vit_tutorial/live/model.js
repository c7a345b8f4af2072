import { bytes } from "./dom.js";

// The Vision Transformer's forward pass. Each function is named as in the package: patchify, embed, attention, ...
// A tensor is a Float64Array, row by row; its shape stands at the end of its line. Weights are kept in float32.
// A function* stops at each yield, so that the page can follow the pen before it goes on; finish() doesn't stop.

export function finish(steps) {
  let step = steps.next();
  while (!step.done) step = steps.next();
  return step.value;
}

// ------------------------------------------------------------------------------------------------- small parts

// x Wᵀ + b, for each of the rows: (rows, in) -> (rows, out).
// Four rows at once, since fetching a weight takes longer than multiplying it.
function linear(x, { weight, bias }, rows) {
  const inputs = x.length / rows;
  const outputs = weight.length / inputs;
  const y = new Float64Array(rows * outputs);
  for (let row = 0; row < rows; row += 4) {
    const [r0, r1, r2, r3] = [0, 1, 2, 3].map((i) => Math.min(row + i, rows - 1)); // at the end one is done again
    for (let o = 0; o < outputs; o++) {
      let [s0, s1, s2, s3] = [0, 0, 0, 0];
      for (let i = 0; i < inputs; i++) {
        const w = weight[o * inputs + i];
        s0 += w * x[r0 * inputs + i];
        s1 += w * x[r1 * inputs + i];
        s2 += w * x[r2 * inputs + i];
        s3 += w * x[r3 * inputs + i];
      }
      const b = bias ? bias[o] : 0;
      y[r0 * outputs + o] = s0 + b;
      y[r1 * outputs + o] = s1 + b;
      y[r2 * outputs + o] = s2 + b;
      y[r3 * outputs + o] = s3 + b;
    }
  }
  return y; // (rows, out)
}

// Each row with mean 0 and variance 1, then stretched and shifted: (rows, D) -> (rows, D).
function layerNorm(x, { weight, bias }, eps) {
  const D = weight.length;
  const y = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += D) {
    let mean = 0;
    let variance = 0;
    for (let i = 0; i < D; i++) mean += x[start + i] / D;
    for (let i = 0; i < D; i++) variance += (x[start + i] - mean) ** 2 / D;
    const scale = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < D; i++) y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
  }
  return y; // (rows, D)
}

// 2 / √π e^(-x²) (x + 2 x³ / 3 + 4 x⁵ / 15 + ...), whose terms have one sign, so that none cancels another.
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x); // all digits of it
  let term = x;
  let sum = x;
  for (let n = 3; Math.abs(term) > 1e-17 * Math.abs(sum); n += 2) {
    term *= (2 * x * x) / n;
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

function gelu(x, kind) {
  if (kind === "tanh") return x.map((v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));
  return x.map((v) => 0.5 * v * (1 + erf(v / Math.SQRT2)));
}

// Rows of numbers as shares that sum to 1: (rows, width) -> (rows, width).
function softmax(x, width) {
  const y = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += width) {
    let most = -Infinity;
    let sum = 0;
    for (let i = 0; i < width; i++) most = Math.max(most, x[start + i]);
    for (let i = 0; i < width; i++) sum += Math.exp(x[start + i] - most);
    for (let i = 0; i < width; i++) y[start + i] = Math.exp(x[start + i] - most) / sum;
  }
  return y; // (rows, width)
}

const plus = (x, y) => x.map((v, i) => v + y[i]);

// (rows, columns) -> (columns, rows).
function transpose(x, rows) {
  const columns = x.length / rows;
  const y = new Float64Array(x.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) y[column * rows + row] = x[row * columns + column];
  }
  return y; // (columns, rows)
}

// ------------------------------------------------------------------------------------------------- Eq. 1

// Where in an image (C, H, W) the numbers of its patches (N, C*P*Q) stand: row by row, each by channel, row, column.
function patchIndices([C, H, W], [P, Q]) {
  const columns = W / Q;
  const length = C * P * Q;
  const out = new Int32Array(C * H * W);
  for (let c = 0; c < C; c++) {
    for (let y = 0; y < H; y++) {
      for (let x = 0; x < W; x++) {
        const patch = Math.floor(y / P) * columns + Math.floor(x / Q);
        out[patch * length + (c * P + (y % P)) * Q + (x % Q)] = (c * H + y) * W + x;
      }
    }
  }
  return out; // (N, C*P*Q)
}

// Cut an image (C, H, W) into patches and flatten each one: (N, C*P*Q).
export function patchify(image, shape, patchSize) {
  return Float64Array.from(patchIndices(shape, patchSize), (place) => image[place]);
}

// Put patches (N, C*P*Q) back together: (C, H, W).
export function unpatchify(patches, shape, patchSize) {
  const image = new Float64Array(patches.length);
  patchIndices(shape, patchSize).forEach((place, i) => {
    image[place] = patches[i];
  });
  return image; // (C, H, W)
}

// The vectors that the positions add to the tokens, (T, D), as they are or changed.
function positionOf({ position }, config, change) {
  const { dim: D, tokens: T, prefix } = config;
  if (!position || change === "none") return new Float64Array(T * D);
  if (change !== "reversed") return position;
  const out = position.slice(); // the class token keeps its own
  for (let n = prefix; n < T; n++) out.set(position.subarray((T - 1 - n + prefix) * D, (T - n + prefix) * D), n * D);
  return out; // (T, D)
}

// Eq. 1: an image (C, H, W) becomes tokens (T, D).
function embed(image, weights, config, change) {
  const { dim: D, prefix, shape, patch_size } = config;
  const patches = patchify(image, shape, patch_size); // (N, C*P*Q)
  const projected = linear(patches, weights.patches.proj, config.patches); // (N, D), x E
  const content = new Float64Array(config.tokens * D); // (T, D), before the positions
  if (prefix) content.set(weights.cls_token);
  content.set(projected, prefix * D);
  const position = positionOf(weights, config, change); // (T, D)
  return { patches, projected, content, position, tokens: plus(content, position) };
}

// ------------------------------------------------------------------------------------------------- Eq. 2 and 3

// softmax(q kᵀ / √d) v, step by step, for one head: q, k, v (T, d).
function dotProductAttention(q, k, v, T, { scale = true, temperature = 1 }) {
  const d = q.length / T;
  const divisor = (scale ? Math.sqrt(d) : 1) * temperature;
  const scores = linear(q, { weight: k }, T); // (T, T), q kᵀ
  const scaled = scores.map((score) => score / divisor); // (T, T)
  const weights = softmax(scaled, T); // (T, T)
  const sums = linear(weights, { weight: transpose(v, T) }, T); // (T, d), weights v
  return { scores, scaled, weights, sums };
}

// Columns from start to start + width of a matrix (T, any): (T, width).
function columnsOf(x, T, start, width) {
  const across = x.length / T;
  const out = new Float64Array(T * width);
  for (let t = 0; t < T; t++) out.set(x.subarray(t * across + start, t * across + start + width), t * width);
  return out;
}

// Eq. 5 to 8: h attentions side by side, then one projection: (T, D) -> (T, D).
function multiHeadSelfAttention(x, weights, config, on, changes) {
  const { dim: D, tokens: T, num_heads } = config;
  const d = D / num_heads;
  const qkv = linear(x, weights.qkv, T); // (T, 3 D)
  const heads = [];
  const joined = new Float64Array(T * D);
  for (let head = 0; head < num_heads; head++) {
    const [q, k, v] = [0, 1, 2].map((part) => columnsOf(qkv, T, part * D + head * d, d)); // each (T, d)
    heads.push({ q, k, v, ...dotProductAttention(q, k, v, T, changes) });
    if (!on(`heads.${head}`)) continue;
    for (let t = 0; t < T; t++) joined.set(heads[head].sums.subarray(t * d, (t + 1) * d), t * D + head * d);
  }
  return { heads, joined, out: linear(joined, weights.proj, T) };
}

// Two linear layers, a GELU between: (T, D) -> (T, D).
function mlp(x, weights, { tokens: T, gelu: kind }) {
  const before = linear(x, weights.fc1, T); // (T, M)
  const hidden = gelu(before, kind); // (T, M)
  return { before, hidden, out: linear(hidden, weights.fc2, T) };
}

// z + branch; without the branch, or without z, where one of them is switched off.
function residual(z, branch, hasBranch, hasShortcut) {
  if (!hasBranch) return hasShortcut ? z : z.map(() => 0);
  return hasShortcut ? plus(z, branch) : branch;
}

// Eq. 2 and 3: tokens (T, D) -> (T, D).
function block(z, weights, config, on, changes) {
  const norm1 = layerNorm(z, weights.norm1, config.norm_eps); // (T, D)
  const within = (part) => on(`attention.${part}`);
  const attended = multiHeadSelfAttention(norm1, weights.attention, config, within, changes);
  const middle = residual(z, attended.out, on("attention"), on("attention.residual")); // (T, D), z'
  const norm2 = layerNorm(middle, weights.norm2, config.norm_eps); // (T, D)
  const expanded = mlp(norm2, weights.mlp, config);
  const out = residual(middle, expanded.out, on("mlp"), on("mlp.residual")); // (T, D)
  return { input: z, norm1, attention: attended, middle, norm2, mlp: expanded, out: on("") ? out : z };
}

// ------------------------------------------------------------------------------------------------- Eq. 4

// What the head reads of tokens (T, D), after the last norm: the class token, or the mean of all patches: (D,).
function pool(z, { pool: kind, dim: D, tokens: T }) {
  if (kind === "cls") return z.slice(0, D);
  const mean = new Float64Array(D);
  for (let i = 0; i < z.length; i++) mean[i % D] += z[i] / T;
  return mean; // (D,)
}

// The whole model: an image (C, H, W), normalised -> every number on the way.
// changes: {off: names of parts, scale, temperature, position}; what isn't named stays as it was trained.
export function* vit(image, weights, config, changes = {}) {
  const off = new Set(changes.off);
  const start = embed(image, weights.embed, config, changes.position);
  const blocks = [];
  for (let layer = 0, z = start.tokens; layer < config.depth; layer++) {
    const on = (part) => !off.has(part ? `blocks.${layer}.${part}` : `blocks.${layer}`);
    blocks.push(block(z, weights.blocks[layer], config, on, changes));
    z = blocks[layer].out; // (T, D)
    yield;
  }
  const norm = layerNorm(blocks.at(-1).out, weights.norm, config.norm_eps); // (T, D)
  const pooled = pool(norm, config); // (D,)
  const logits = linear(pooled, weights.head, 1); // (K,)
  const probabilities = softmax(logits, logits.length); // (K,)
  return { image, embed: start, blocks, norm, pooled, logits, probabilities };
}

// What the head would say after each layer, if the model ended there (the logit lens): L + 1 times (K,).
export function lens(run, weights, config) {
  return [run.embed.tokens, ...run.blocks.map(({ out }) => out)].map((z) => {
    const norm = layerNorm(z, weights.norm, config.norm_eps); // (T, D)
    return softmax(linear(pool(norm, config), weights.head, 1), config.num_classes); // (K,)
  });
}

// ------------------------------------------------------------------------------------------------- weights

// Numbers of float16, by their bits; none is infinite. There are 65,536 of them, so each is looked up.
function fromHalf(bits) {
  const numbers = Float32Array.from({ length: 65536 }, (_, b) => {
    const exponent = (b >> 10) & 31;
    const size = exponent ? (1 + (b & 1023) / 1024) * 2 ** (exponent - 15) : (b & 1023) * 2 ** -24;
    return b >> 15 ? -size : size;
  });
  const out = new Float32Array(bits.length);
  for (let i = 0; i < out.length; i++) out[i] = numbers[bits[i]];
  return out;
}

// Numbers one after the other, with [[name in the state dict, how many numbers]], as a tree: blocks[0].mlp.fc1.weight.
function treeOf(names, numbers) {
  const tree = {};
  let start = 0;
  for (const [name, length] of names) {
    const path = name.split(".");
    const last = path.pop();
    let branch = tree;
    for (const part of path) branch = branch[part] ??= {};
    branch[last] = numbers.subarray(start, start + length);
    start += length;
  }
  return tree;
}

export function unpack({ names, half, values }) {
  const { buffer } = bytes(values);
  return treeOf(names, half ? fromHalf(new Uint16Array(buffer)) : new Float32Array(buffer));
}

// States of the training. Each is the one before, and differences in steps of its tensors' scales; the first one begins
// with zeros.
export function unpackStates({ names }, states) {
  let numbers = null;
  return states.map(({ name, scales, values }) => {
    const steps = new Int8Array(bytes(values).buffer);
    numbers = numbers?.slice() ?? new Float32Array(steps.length);
    let i = 0;
    names.forEach(([, length], tensor) => {
      for (const end = i + length; i < end; i++) numbers[i] += steps[i] * scales[tensor];
    });
    return { name, weights: treeOf(names, numbers) };
  });
}
