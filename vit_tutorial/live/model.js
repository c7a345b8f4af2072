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

// (C, H, W) -> (F, H / stride, W / stride), with half a kernel of zeros around it: a linear layer on what each kernel
// sees.
/**
 * @param {Numbers} x
 * @param {Shape} shape
 * @param {Layer['weight']} weight
 * @param {Shape} kernel
 * @returns {{ map: Numbers, shape: Shape }}
 */
function conv2d(x, [C, H, W], weight, [F, K, stride]) {
  const pad = (K - 1) >> 1;
  const [rows, columns] = [H, W].map((side) => Math.floor((side + 2 * pad - K) / stride) + 1);
  const seen = new Float64Array(rows * columns * C * K * K); // (h*w, C*K*K)
  for (let place = 0, i = 0; place < rows * columns; place++) {
    const top = Math.floor(place / columns) * stride - pad;
    const left = (place % columns) * stride - pad;
    for (let c = 0; c < C; c++) {
      for (let y = top; y < top + K; y++) {
        for (let column = left; column < left + K; column++, i++) {
          if (y >= 0 && y < H && column >= 0 && column < W) seen[i] = x[(c * H + y) * W + column];
        }
      }
    }
  }
  const y = linear(seen, { weight }, rows * columns); // (h*w, F)
  return { map: transpose(y, rows * columns), shape: [F, rows, columns] };
}

// A convolution's map after its batch norm and ReLU.
/** @param {Numbers} map @param {BatchNorm} norm @returns {Numbers} */
function normAndRelu(map, { weight, bias, running_mean, running_var }) {
  const size = map.length / weight.length;
  return map.map((v, i) => {
    const f = Math.floor(i / size);
    const scale = weight[f] / Math.sqrt(running_var[f] + 1e-5);
    return Math.max(0, (v - running_mean[f]) * scale + bias[f]);
  });
}

// The convolutions before the cut (lesson 12): the maps after each of them.
/**
 * @param {Numbers} image
 * @param {Shape} shape
 * @param {Shape[]} layers
 * @param {EmbedWeights['patches']['features']} features
 * @returns {Generator<undefined, EmbedPass['maps'], any>}
 */
function* convStem(image, shape, layers, features) {
  const maps = [];
  for (const [i, [channels, kernel, stride]] of layers.entries()) {
    const before = maps.at(-1) ?? { map: image, shape };
    const after = conv2d(before.map, before.shape, features[i].conv.weight, [channels, kernel, stride]);
    maps.push({ map: normAndRelu(after.map, features[i].norm), shape: after.shape });
    yield;
  }
  return maps;
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
 * @returns {Generator<undefined, EmbedPass, any>}
 */
function* embed(image, weights, config, change) {
  const { dim: D, prefix, shape, patch_size, stem } = config;
  const patches = patchify(image, shape, patch_size); // (N, C*P*Q)
  const maps = stem ? yield* convStem(image, shape, stem.layers, weights.patches.features) : [];
  let cut = patches; // what E multiplies: with a stem, patches of its last map
  if (stem) {
    const [, rows, columns] = maps.at(-1).shape;
    const size = [rows / config.grid[0], columns / config.grid[1]];
    cut = patchify(maps.at(-1).map, maps.at(-1).shape, size); // (N, F*P*Q)
  }
  const projected = linear(cut, weights.patches.proj, config.patches); // (N, D), x E
  const content = new Float64Array(config.tokens * D); // (T, D), before the positions
  if (prefix) content.set(weights.cls_token);
  content.set(projected, prefix * D);
  const position = positionOf(weights, config, change); // (T, D)
  return { patches, maps, cut, projected, content, position, tokens: plus(content, position) };
}

// ------------------------------------------------------------------------------------------------- Eq. 2 and 3

// softmax(q kᵀ / √d) v, step by step, for one head: q, k, v (T, d).
/**
 * @param {Numbers} q
 * @param {Numbers} k
 * @param {Numbers} v
 * @param {number} T
 * @param {Changes} changes
 * @returns {Omit<Head, 'q' | 'k' | 'v'>}
 */
function attention(q, k, v, T, { scale = true, temperature = 1 } = {}) {
  const d = q.length / T;
  const divisor = (scale ? Math.sqrt(d) : 1) * temperature;
  const scores = linear(q, { weight: k }, T); // (T, T), q kᵀ
  const scaled = scores.map((score) => score / divisor); // (T, T)
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
    const [q, k, v] = [0, 1, 2].map((part) => columnsOf(qkv, T, part * D + head * d, d)); // each (T, d)
    heads.push({ q, k, v, ...attention(q, k, v, T, changes) });
    if (!on(`heads.${head}`)) continue;
    for (let t = 0; t < T; t++) joined.set(heads[head].sums.subarray(t * d, (t + 1) * d), t * D + head * d);
  }
  return { heads, joined, out: linear(joined, weights.proj, T) };
}

// Two linear layers, a GELU between: (T, D) -> (T, D).
/** @param {Numbers} x @param {BlockWeights['mlp']} weights @param {Config} config @returns {BlockPass['mlp']} */
function mlp(x, weights, config) {
  const before = linear(x, weights.fc1, config.tokens); // (T, M)
  const hidden = gelu(before, config.gelu); // (T, M)
  return { before, hidden, out: linear(hidden, weights.fc2, config.tokens) };
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

// What the head reads of tokens (T, D), after the last norm.
/** @param {Numbers} z @param {Config} config @returns {Numbers} */
function pool(z, { dim: D, tokens: T, pool: kind }) {
  if (kind === "cls") return z.slice(0, D); // (D,)
  if (kind === "distilled") return z.slice(0, 2 * D); // (2 D,)
  const mean = new Float64Array(D);
  for (let i = 0; i < z.length; i++) mean[i % D] += z[i] / T;
  return mean; // (D,)
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
  const start = yield* embed(image, weights.embed, config, changes.position);
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
  const answer = logits.map((logit) => logit / (changes.answer ?? 1)); // (K,)
  const probabilities = softmax(answer, logits.length); // (K,)
  return { image, embed: start, blocks, norm, pooled, logits, probabilities };
}

// The head's shares of what it reads, (rows, ...), as if the model ended there: (rows, K).
/**
 * @param {Numbers} read
 * @param {number} rows
 * @param {Weights} weights
 * @param {number} temperature
 * @returns {Numbers}
 */
function sharesOf(read, rows, weights, temperature) {
  const logits = linear(read, weights.head, rows); // (rows, K)
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
  const norm = layerNorm(z, weights.norm, config.norm_eps); // (T, D)
  return sharesOf(pool(norm, config), 1, weights, temperature);
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
    const norm = layerNorm(z, weights.norm, config.norm_eps); // (T, D)
    const isSingle = config.pool !== "distilled"; // its head reads two tokens at once
    return { answer, tokens: isSingle ? sharesOf(norm, config.tokens, weights, temperature) : null }; // (T, K)
  });
}

// ------------------------------------------------------------------------------------------------- weights

// Numbers of float16, by their bits; none is infinite.
/** @param {Uint16Array} bits @returns {Float32Array} */
function fromHalf(bits) {
  return Float32Array.from(bits, (b) => {
    const exponent = (b >> 10) & 31;
    const size = exponent ? (1 + (b & 1023) / 1024) * 2 ** (exponent - 15) : (b & 1023) * 2 ** -24;
    return b >> 15 ? -size : size;
  });
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
