import { clamp } from "../pages/page.js";

// A photograph of something drawn, as what a model of light strokes on black has learned from: cut out, centred, as
// large as the frame, light on black.

const FAINT = 0.1; // a stroke differs from its ground by this, of 1 from black to white, or it isn't seen
const SPECKS = 0.005; // the share of the strokes at each end that isn't counted: dust
const LEVELS = 64;
const WIDTHS = [1.1, 1.5]; // of the lines of the digits that are learned from, in pixels

// A plane through the levels along the edge of grey (height, width): paper is lighter on the side of the lamp.
function groundOf(grey, height, width) {
  const [y0, x0] = [(height - 1) / 2, (width - 1) / 2];
  let [sum, count, byY, ofY, byX, ofX] = [0, 0, 0, 0, 0, 0];
  for (let i = 0; i < grey.length; i++) {
    const [y, x] = [Math.floor(i / width), i % width];
    if (y && x && y < height - 1 && x < width - 1) continue;
    sum += grey[i];
    count++;
    byY += (y - y0) * grey[i];
    ofY += (y - y0) ** 2;
    byX += (x - x0) * grey[i];
    ofX += (x - x0) ** 2;
  }
  const [down, right] = [byY / (ofY || 1), byX / (ofX || 1)];
  return (i) => sum / count + down * (Math.floor(i / width) - y0) + right * ((i % width) - x0);
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
  const ground = groundOf(grey, height, width);
  const away = grey.map((v, i) => v - ground(i));
  const isDark = away.reduce((sum, v) => sum + v ** 3, 0) < 0;
  const strength = away.map((v) => Math.max(0, isDark ? -v : v));
  const { level, apart } = partingOf(strength);
  const found = strength.map((v) => Number(v >= level));
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
