import { bytes } from "../pages/page.js";

// The Vision Transformer's forward pass. Each function is named as in the package: patchify, embed, attention, ...
// A tensor is a Float64Array, row by row; its shape stands at the end of its line. Weights are kept in float32.
// A function* stops at each yield, so that the page can follow the pen before it goes on; finish() doesn't stop.

/** @param {Generator} steps @returns {any} */
export function finish(steps) {
  let step = steps.next();
  while (!step.done) step = steps.next();
  return step.value;
}

// ------------------------------------------------------------------------------------------------- small parts

// x Wᵀ + b, for each of the rows: (rows, in) -> (rows, out).
// Eight sums at once, of four rows and two outputs, since fetching a number takes longer than multiplying it.
/** @param {Numbers | Float32Array} x @param {Layer} layer @param {number} rows @returns {Numbers} */
function linear(x, { weight, bias }, rows) {
  const inputs = x.length / rows;
  const outputs = weight.length / inputs;
  const y = new Float64Array(rows * outputs);
  for (let o = 0; o < outputs; o += 2) {
    const p = Math.min(o + 1, outputs - 1); // at the edge the last one is done again
    for (let row = 0; row < rows; row += 4) {
      const row1 = Math.min(row + 1, rows - 1);
      const row2 = Math.min(row + 2, rows - 1);
      const row3 = Math.min(row + 3, rows - 1);
      let o0 = bias ? bias[o] : 0;
      let o1 = o0;
      let o2 = o0;
      let o3 = o0;
      let p0 = bias ? bias[p] : 0;
      let p1 = p0;
      let p2 = p0;
      let p3 = p0;
      for (let i = 0; i < inputs; i++) {
        const wo = weight[o * inputs + i];
        const wp = weight[p * inputs + i];
        const x0 = x[row * inputs + i];
        const x1 = x[row1 * inputs + i];
        const x2 = x[row2 * inputs + i];
        const x3 = x[row3 * inputs + i];
        o0 += wo * x0;
        o1 += wo * x1;
        o2 += wo * x2;
        o3 += wo * x3;
        p0 += wp * x0;
        p1 += wp * x1;
        p2 += wp * x2;
        p3 += wp * x3;
      }
      y[row * outputs + o] = o0;
      y[row1 * outputs + o] = o1;
      y[row2 * outputs + o] = o2;
      y[row3 * outputs + o] = o3;
      y[row * outputs + p] = p0;
      y[row1 * outputs + p] = p1;
      y[row2 * outputs + p] = p2;
      y[row3 * outputs + p] = p3;
    }
  }
  return y; // (rows, out)
}

// Each row with root mean square 1, then stretched: (rows, D) -> (rows, D).
/** @param {Numbers} x @param {Layer} layer @param {number} eps @returns {Numbers} */
function rmsNorm(x, { weight }, eps) {
  const D = weight.length;
  const y = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += D) {
    let square = 0;
    for (let i = 0; i < D; i++) square += x[start + i] ** 2 / D;
    for (let i = 0; i < D; i++) y[start + i] = (x[start + i] / Math.sqrt(square + eps)) * weight[i];
  }
  return y; // (rows, D)
}

// The norm that a model has in a place: a layer norm, an RMS norm, which has no bias, or none.
/** @param {Numbers} x @param {Layer | undefined} layer @param {number} eps @returns {Numbers} */
function normed(x, layer, eps) {
  if (!layer) return x;
  return layer.bias ? layerNorm(x, layer, eps) : rmsNorm(x, layer, eps);
}

// Each row with mean 0 and variance 1, then stretched and shifted: (rows, D) -> (rows, D).
/** @param {Numbers} x @param {Layer} layer @param {number} eps @returns {Numbers} */
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
/** @param {number} x @returns {number} */
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

/** @param {Numbers} x @param {string} kind @returns {Numbers} */
function gelu(x, kind) {
  if (kind === "quick") return x.map((v) => v / (1 + Math.exp(-1.702 * v)));
  if (kind === "tanh") return x.map((v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));
  return x.map((v) => 0.5 * v * (1 + erf(v / Math.SQRT2)));
}

// Rows of numbers as shares that sum to 1: (rows, width) -> (rows, width).
/** @param {Numbers} x @param {number} width @returns {Numbers} */
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
/** @param {Numbers} x @param {number} rows @returns {Numbers} */
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
/** @param {Shape} shape @param {Pair} patchSize @returns {Int32Array} */
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
/** @param {Numbers | Float32Array} image @param {Shape} shape @param {Pair} patchSize @returns {Numbers} */
export function patchify(image, shape, patchSize) {
  return Float64Array.from(patchIndices(shape, patchSize), (place) => image[place]);
}

// Put patches (N, C*P*Q) back together: (C, H, W).
/** @param {Numbers} patches @param {Shape} shape @param {Pair} patchSize @returns {Numbers} */
export function unpatchify(patches, shape, patchSize) {
  const image = new Float64Array(patches.length);
  patchIndices(shape, patchSize).forEach((place, i) => {
    image[place] = patches[i];
  });
  return image; // (C, H, W)
}

// The vectors that the positions add to the tokens, (T, D), as they are or changed.
/**
 * @param {EmbedWeights} weights
 * @param {Config} config
 * @param {Changes['position']} change
 * @returns {Numbers | Float32Array}
 */
function positionOf({ position }, config, change) {
  const { dim: D, tokens: T, prefix } = config;
  if (!position || change === "none") return new Float64Array(T * D);
  if (change !== "reversed") return position;
  const out = position.slice(); // the class token keeps its own
  for (let n = prefix; n < T; n++) out.set(position.subarray((T - 1 - n + prefix) * D, (T - n + prefix) * D), n * D);
  return out; // (T, D)
}

// Eq. 1: an image (C, H, W) becomes tokens (T, D).
/**
 * @param {Numbers} image
 * @param {EmbedWeights} weights
 * @param {Config} config
 * @param {Changes['position']} change
 * @returns {EmbedPass}
 */
function embed(image, weights, config, change) {
  const { dim: D, prefix, shape, patch_size } = config;
  const patches = patchify(image, shape, patch_size); // (N, C*P*Q)
  const projected = linear(patches, weights.patches.proj, config.patches); // (N, D), x E
  const content = new Float64Array(config.tokens * D); // (T, D), before the positions
  if (prefix) content.set(weights.cls_token);
  content.set(projected, prefix * D);
  const position = positionOf(weights, config, change); // (T, D)
  const tokens = normed(plus(content, position), weights.norm, config.norm_eps); // (T, D)
  return { patches, projected, content, position, tokens };
}

// ------------------------------------------------------------------------------------------------- Eq. 2 and 3

// Rotary positions: the pairs (i, i + d / 2) of x (T, d) turned by angles whose cos and sin are (T, d / 2).
/** @param {Numbers} x @param {{ cos: Float32Array, sin: Float32Array }} angles @param {number} T @returns {Numbers} */
function rotate(x, { cos, sin }, T) {
  const half = x.length / T / 2;
  const y = new Float64Array(x.length);
  for (let t = 0; t < T; t++) {
    for (let i = 0; i < half; i++) {
      const [a, b] = [2 * t * half + i, (2 * t + 1) * half + i];
      const angle = t * half + i;
      y[a] = x[a] * cos[angle] - x[b] * sin[angle];
      y[b] = x[b] * cos[angle] + x[a] * sin[angle];
    }
  }
  return y; // (T, d)
}

// softmax(q kᵀ / √d + bias) v, step by step, for one head: q, k, v (T, d), bias (T, T).
/**
 * @param {Numbers} q
 * @param {Numbers} k
 * @param {Numbers} v
 * @param {number} T
 * @param {Changes} changes
 * @param {Numbers | null} bias
 * @returns {Omit<Head, 'q' | 'k' | 'v'>}
 */
function attention(q, k, v, T, { scale = true, temperature = 1 } = {}, bias = null) {
  const d = q.length / T;
  const divisor = (scale ? Math.sqrt(d) : 1) * temperature;
  const scores = linear(q, { weight: k }, T); // (T, T), q kᵀ
  const scaled = scores.map((score, i) => score / divisor + (bias ? bias[i] / temperature : 0)); // (T, T)
  const weights = softmax(scaled, T); // (T, T)
  const sums = linear(weights, { weight: transpose(v, T) }, T); // (T, d), weights v
  return { scores, scaled, weights, sums };
}

// Columns from start to start + width of a matrix (T, any): (T, width).
/** @param {Numbers} x @param {number} T @param {number} start @param {number} width @returns {Numbers} */
function columnsOf(x, T, start, width) {
  const across = x.length / T;
  const out = new Float64Array(T * width);
  for (let t = 0; t < T; t++) out.set(x.subarray(t * across + start, t * across + start + width), t * width);
  return out;
}

// Queries or keys (T, d) rotated by their places, in a model that does so.
/** @param {Numbers} x @param {Config} config @returns {Numbers} */
const placed = (x, { angles, tokens }) => (angles ? rotate(x, angles, tokens) : x);

// The position bias of a head, for each query and key: (T, T); null for none.
/** @param {BlockWeights['attention']} weights @param {Config} config @param {number} head @returns {Numbers | null} */
function biasOf({ position_bias }, { num_heads, offsets }, head) {
  return position_bias ? Float64Array.from(offsets, (row) => position_bias[row * num_heads + head]) : null;
}

// Eq. 5 to 8: h attentions side by side, then one projection: (T, D) -> (T, D).
/**
 * @param {Numbers} x
 * @param {BlockWeights['attention']} weights
 * @param {Config} config
 * @param {(part: string) => boolean} on
 * @param {Changes} changes
 * @returns {BlockPass['attention']}
 */
function multiHeadSelfAttention(x, weights, config, on, changes) {
  const { dim: D, tokens: T, num_heads } = config;
  const d = D / num_heads;
  const qkv = linear(x, weights.qkv, T); // (T, 3 D)
  const heads = [];
  const joined = new Float64Array(T * D);
  for (let head = 0; head < num_heads; head++) {
    const [ofQ, ofK, v] = [0, 1, 2].map((part) => columnsOf(qkv, T, part * D + head * d, d)); // each (T, d)
    const q = placed(normed(ofQ, weights.q_norm, config.norm_eps), config);
    const k = placed(normed(ofK, weights.k_norm, config.norm_eps), config);
    heads.push({ q, k, v, ...attention(q, k, v, T, changes, biasOf(weights, config, head)) });
    if (!on(`heads.${head}`)) continue;
    for (let t = 0; t < T; t++) joined.set(heads[head].sums.subarray(t * d, (t + 1) * d), t * D + head * d);
  }
  return { heads, joined, out: linear(normed(joined, weights.norm, config.norm_eps), weights.proj, T) };
}

// Two linear layers, a GELU between, or a gate, silu(x W1) * (x W2): (T, D) -> (T, D).
/** @param {Numbers} x @param {BlockWeights['mlp']} weights @param {Config} config @returns {BlockPass['mlp']} */
function mlp(x, weights, config) {
  const { tokens: T, mlp_dim: M } = config;
  const both = linear(x, weights.fc1, T); // (T, M), or (T, 2 M) with a gate
  const before = config.gated ? columnsOf(both, T, 0, M) : both; // (T, M)
  const value = config.gated ? columnsOf(both, T, M, M) : null; // (T, M)
  const gate = (v, i) => (v / (1 + Math.exp(-v))) * value[i];
  const hidden = value ? before.map(gate) : gelu(before, config.gelu); // (T, M)
  return { before, hidden, out: linear(normed(hidden, weights.norm, config.norm_eps), weights.fc2, T) };
}

// z + branch; without the branch, or without z, where one of them is switched off.
/**
 * @param {Numbers} z
 * @param {Numbers} branch
 * @param {boolean} hasBranch
 * @param {boolean} hasShortcut
 * @returns {Numbers}
 */
function residual(z, branch, hasBranch, hasShortcut) {
  if (!hasBranch) return hasShortcut ? z : z.map(() => 0);
  return hasShortcut ? plus(z, branch) : branch;
}

// Eq. 2 and 3: tokens (T, D) -> (T, D).
/**
 * @param {Numbers} z
 * @param {BlockWeights} weights
 * @param {Config} config
 * @param {(part: string) => boolean} on
 * @param {Changes} changes
 * @returns {BlockPass}
 */
function block(z, weights, config, on, changes) {
  const norm1 = normed(z, weights.norm1, config.norm_eps); // (T, D)
  const within = (part) => on(`attention.${part}`);
  const attended = multiHeadSelfAttention(norm1, weights.attention, config, within, changes);
  const middle = residual(z, attended.out, on("attention"), on("attention.residual")); // (T, D), z'
  const norm2 = normed(middle, weights.norm2, config.norm_eps); // (T, D)
  const expanded = mlp(norm2, weights.mlp, config);
  const out = residual(middle, expanded.out, on("mlp"), on("mlp.residual")); // (T, D)
  return { input: z, norm1, attention: attended, middle, norm2, mlp: expanded, out: on("") ? out : z };
}

// ------------------------------------------------------------------------------------------------- Eq. 4

// One learned query, the probe, attends to tokens (S, D); then an MLP with its shortcut: (D,).
/** @param {Numbers} z @param {PoolWeights} weights @param {Config} config @returns {Numbers} */
function attentionPool(z, weights, config) {
  const { dim: D, pool_heads: h, norm_eps } = config;
  const [S, d] = [z.length / D, D / h];
  const q = linear(weights.probe, weights.q, 1); // (D,)
  const kv = linear(z, weights.kv, S); // (S, 2 D)
  const joined = new Float64Array(D);
  for (let head = 0; head < h; head++) {
    const k = columnsOf(kv, S, head * d, d); // (S, d)
    const v = columnsOf(kv, S, D + head * d, d); // (S, d)
    const scores = linear(q.subarray(head * d, (head + 1) * d), { weight: k }, 1); // (S,)
    const shares = softmax(
      scores.map((score) => score / Math.sqrt(d)),
      S,
    ); // (S,)
    joined.set(linear(shares, { weight: transpose(v, S) }, 1), head * d);
  }
  const y = linear(joined, weights.proj, 1); // (D,)
  const hidden = gelu(linear(normed(y, weights.norm, norm_eps), weights.mlp.fc1, 1), config.gelu);
  return plus(y, linear(hidden, weights.mlp.fc2, 1)); // (D,)
}

// What the head reads of tokens (T, D), after the last norm: (D,), or (2 D,) of two of them.
/** @param {Numbers} z @param {Weights} weights @param {Config} config @returns {Numbers} */
function pool(z, weights, config) {
  const { pool: kind, dim: D, pool_prefix, prefix } = config;
  const read = pool_prefix ? z : z.subarray(prefix * D); // (N, D)
  if (kind === "cls") return z.slice(0, D);
  if (kind === "distilled") return z.slice(0, 2 * D);
  if (kind === "attention") return attentionPool(read, weights.pool, config);
  const mean = new Float64Array(D);
  for (let i = 0; i < read.length; i++) mean[i % D] += (read[i] * D) / read.length;
  return kind === "mean" ? mean : Float64Array.from([...z.subarray(0, D), ...mean]);
}

// What the head reads, after the last norm and the pooling's own: tokens (T, D) -> (D,).
/** @param {Numbers} z @param {Weights} weights @param {Config} config @returns {{ last: Numbers, pooled: Numbers }} */
function readOf(z, weights, config) {
  const last = normed(z, weights.norm, config.norm_eps); // (T, D)
  return { last, pooled: normed(pool(last, weights, config), weights.pool_norm, config.norm_eps) };
}

// What the head reads, (rows, D), as logits: (rows, K). A model without classes compares directions.
/** @param {Numbers} read @param {number} rows @param {Weights} weights @param {Config} config @returns {Numbers} */
function logitsOf(read, rows, { head }, { likeness }) {
  if (!likeness) return linear(read, head, rows);
  const D = read.length / rows;
  const lengths = Array.from({ length: rows }, (_, row) => Math.hypot(...read.subarray(row * D, (row + 1) * D)));
  return linear(
    read.map((v, i) => (likeness * v) / lengths[Math.floor(i / D)]),
    head,
    rows,
  );
}

// The whole model: an image (C, H, W), normalised -> every number on the way.
// changes: {off: names of parts, scale, temperature, position, answer}; what isn't named stays as it was trained.
/**
 * @param {Numbers} image
 * @param {Weights} weights
 * @param {Config} config
 * @param {Changes} changes
 * @returns {Generator<undefined, Pass, any>}
 */
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
  const { last, pooled } = readOf(blocks.at(-1).out, weights, config); // (T, D), (D,)
  const logits = logitsOf(pooled, 1, weights, config); // (K,)
  const answer = logits.map((logit) => logit / (changes.answer ?? 1)); // (K,)
  const probabilities = softmax(answer, logits.length); // (K,)
  return { image, embed: start, blocks, norm: last, pooled, logits, probabilities };
}

// The head's shares of what it reads, (rows, ...), as if the model ended there: (rows, K).
/**
 * @param {Numbers} read
 * @param {number} rows
 * @param {Weights} weights
 * @param {Config} config
 * @param {number} temperature
 * @returns {Numbers}
 */
function sharesOf(read, rows, weights, config, temperature) {
  const logits = logitsOf(read, rows, weights, config); // (rows, K)
  return softmax(
    logits.map((logit) => logit / temperature),
    logits.length / rows,
  );
}

// What the head would say if tokens z (T, D) left the last block: (K,). temperature: the answer's.
/**
 * @param {Numbers} z
 * @param {Weights} weights
 * @param {Config} config
 * @param {number} temperature
 * @returns {Numbers}
 */
export function answerAt(z, weights, config, temperature = 1) {
  return sharesOf(readOf(z, weights, config).pooled, 1, weights, config, temperature);
}

// What the head would say after each layer, and of each token alone (the logit lens): [{answer (K,), tokens (T, K)}].
/**
 * @param {Pass} run
 * @param {Weights} weights
 * @param {Config} config
 * @param {number} temperature
 * @returns {{ answer: Numbers, tokens: Numbers | null }[]}
 */
export function lens(run, weights, config, temperature = 1) {
  return [run.embed.tokens, ...run.blocks.map(({ out }) => out)].map((z) => {
    const answer = answerAt(z, weights, config, temperature);
    const isSingle = config.pool === "cls" || config.pool === "mean"; // other heads read several tokens at once
    const each = normed(normed(z, weights.norm, config.norm_eps), weights.pool_norm, config.norm_eps); // (T, D)
    return { answer, tokens: isSingle ? sharesOf(each, config.tokens, weights, config, temperature) : null }; // (T, K)
  });
}

// ------------------------------------------------------------------------------------------------- weights

// Numbers of float16, by their bits; none is infinite. There are 65,536 of them, so each is looked up.
/** @param {Uint16Array} bits @returns {Float32Array} */
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

// {names: [[name in the state dict, how many numbers]], values} as a tree: blocks[0].attention.qkv.weight.
export function unpack({ names, half, values }) {
  const { buffer } = bytes(values);
  const numbers = half ? fromHalf(new Uint16Array(buffer)) : new Float32Array(buffer);
  const tree = {};
  let start = 0;
  for (const [name, length] of names) {
    const path = name.split(".");
    const last = path.pop();
    let branch = tree;
    for (const part of path) branch = branch[part] ??= {};
    branch[last] = numbers.subarray(start, (start += length));
  }
  return tree;
}
