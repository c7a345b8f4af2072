import { clamp } from "../pages/page.js";

// A photograph of something drawn, as what a model of light strokes on black has learned from: cut out, centred, as
// large as the frame, light on black.

const FAINT = 0.1; // a stroke differs from its ground by this, of 1 from black to white, or it isn't seen
const SPECKS = 0.005; // the share of the strokes at each end that isn't counted: dust
const REACH = 1 / 8; // of the longer side: what is as wide is ground, not a stroke
const LEAST = 0.02; // of the strokes must lie inside, or the edge cuts the drawing itself
const LEVELS = 64;
const WIDTHS = [1.1, 1.5]; // of the lines of the digits that are learned from, in pixels

// Numbers (height, width) joined with those around, as far as reach: pick(one, other), along rows, then columns.
function joined(values, [height, width], reach, pick) {
  const along = (from, count, step) =>
    from.map((_, i) => {
      const at = Math.floor(i / step) % count;
      let j = -Math.min(reach, at);
      let found = from[i + j * step];
      for (j++; j <= Math.min(reach, count - 1 - at); j++) found = pick(found, from[i + j * step]);
      return found;
    });
  return along(along(values, width, 1), height, width);
}

// How much each level stands out, as ink, of the ground around it, which may be lighter on the side of the lamp and
// dark in a shadow: {strength from 0 to 1, isDark: dark ink on a light ground}.
function inkOf(grey, size, reach) {
  const around = (values, pick) => joined(values, size, reach, pick);
  const [sums, counts] = [grey, grey.map(() => 1)].map((values) => around(values, (a, b) => a + b));
  const isDark = grey.reduce((sum, v, i) => sum + (v - sums[i] / counts[i]) ** 3, 0) < 0; // ink is the lesser part
  const level = isDark ? grey.map((v) => 1 - v) : grey;
  const ground = around(around(level, Math.min), Math.max); // without all that is narrower than its reach
  return { strength: level.map((v, i) => (v - ground[i]) / Math.max(1 - ground[i], 0.1)), isDark };
}

// Strokes (height, width) without what comes in from the edge, such as a desk or ruled lines; all, if there is no more.
function inside(strokes, [height, width]) {
  const out = strokes.slice();
  const isEdge = (i) => i < width || i >= width * (height - 1) || i % width === 0 || i % width === width - 1;
  const open = [...out.keys()].filter(isEdge);
  while (open.length) {
    const i = open.pop();
    if (!out[i]) continue;
    out[i] = 0;
    for (const next of [i - 1, i + 1, i - width, i + width]) if (out[next]) open.push(next);
  }
  const areas = [out, strokes].map((values) => values.reduce((sum, v) => sum + v, 0));
  return areas[0] > LEAST * areas[1] ? out : strokes;
}

// The level that parts values in [0, 1] into two groups as alike within as can be (Otsu), and how far apart they are.
function partingOf(values) {
  const counts = new Float64Array(LEVELS);
  for (const v of values) counts[Math.min(LEVELS - 1, Math.floor(v * LEVELS))]++;
  const total = counts.reduce((sum, n, level) => sum + n * level, 0);
  const found = { spread: -1, level: 1, apart: 0 };
  let below = 0;
  let sum = 0;
  for (let level = 0; level < LEVELS - 1; level++) {
    below += counts[level];
    sum += counts[level] * level;
    const above = values.length - below;
    if (!below || !above) continue;
    const apart = (total - sum) / above - sum / below;
    const spread = below * above * apart ** 2;
    if (spread > found.spread) Object.assign(found, { spread, level: (level + 1) / LEVELS, apart: apart / LEVELS });
  }
  return found;
}

// The first and the last place with strokes: counts of them along one axis.
function endsOf(counts) {
  const total = counts.reduce((sum, n) => sum + n, 0);
  let sum = 0;
  const upTo = counts.map((n) => (sum += n)); // prettier-ignore
  return [
    upTo.findIndex((n) => n > SPECKS * total),
    upTo.findIndex((n) => n >= (1 - SPECKS) * total),
  ]; // prettier-ignore
}

// Strokes (height, width) from 0 to 1 with lines wider by a radius on each side; a negative one makes them narrower.
export function widened(strokes, [height, width], radius) {
  const reach = Math.ceil(Math.abs(radius));
  const disc = [];
  for (let y = -reach; y <= reach; y++) {
    for (let x = -reach; x <= reach; x++) if (Math.hypot(y, x) <= Math.abs(radius)) disc.push([y, x]);
  }
  const pick = radius > 0 ? Math.max : Math.min;
  return strokes.map((v, i) => {
    const [row, column] = [Math.floor(i / width), i % width];
    let out = v;
    for (const [y, x] of disc) {
      const isWithin = row + y >= 0 && row + y < height && column + x >= 0 && column + x < width;
      out = pick(out, isWithin ? strokes[i + y * width + x] : 0);
    }
    return out;
  });
}

// How wide lines are, about: an area through half its outline.
function widthOf(strokes, [height, width]) {
  let area = 0;
  let outline = 0;
  for (let i = 0; i < strokes.length; i++) {
    if (!strokes[i]) continue;
    area++;
    outline += Number(i % width === width - 1 || !strokes[i + 1]) + Number(i % width === 0 || !strokes[i - 1]);
    outline += Number(i >= (height - 1) * width || !strokes[i + width]) + Number(i < width || !strokes[i - width]);
  }
  return (2 * area) / Math.max(outline, 1);
}

// Where strokes (height, width) lie, and how many of their pixels make one of a picture (H, W) that they fill.
function boxOf(strokes, [height, width], [H, W]) {
  const down = new Array(height).fill(0);
  const across = new Array(width).fill(0);
  strokes.forEach((v, i) => {
    down[Math.floor(i / width)] += v;
    across[i % width] += v;
  });
  const [top, bottom] = endsOf(down);
  const [left, right] = endsOf(across);
  const scale = Math.max((bottom - top + 1) / H, (right - left + 1) / W);
  return { scale, y: (top + bottom + 1) / 2, x: (left + right + 1) / 2 };
}

// Levels grey (height, width) from 0 to 1 -> {picture (1, H, W), isDark: dark strokes on a light ground, wider: the
// change of the lines' width, in pixels of the picture}; null: nothing stands out.
export function cutOut(grey, size, [, H, W]) {
  const [height, width] = size;
  const reach = Math.round(REACH * Math.max(...size));
  const { strength, isDark } = inkOf(grey, size, reach);
  const isWithin = (i) => Math.min(i % width, width - 1 - (i % width), i / width, height - 1 - i / width) >= reach;
  const { level, apart } = partingOf(strength.filter((_, i) => isWithin(i))); // at the edge no ground is around
  const found = inside(
    strength.map((v) => Number(v >= level)),
    size,
  );
  if (apart < FAINT || !found.includes(1)) return null;
  const { scale } = boxOf(found, size, [H, W]);
  if (scale < 1) return null; // a speck
  const lines = widthOf(found, size) / scale;
  const wider = clamp(lines, ...WIDTHS) - lines;
  const strokes = widened(found, size, (wider / 2) * scale);
  const box = boxOf(strokes, size, [H, W]);
  // Each pixel is the share of it that is covered, as in the digits that are learned from.
  const picture = new Float32Array(H * W);
  strokes.forEach((v, i) => {
    const y = Math.floor((Math.floor(i / width) + 0.5 - box.y) / box.scale + H / 2);
    const x = Math.floor(((i % width) + 0.5 - box.x) / box.scale + W / 2);
    if (y >= 0 && y < H && x >= 0 && x < W) picture[y * W + x] += v / box.scale ** 2;
  });
  return { picture: picture.map((v) => Math.min(1, v)), isDark, wider };
}
