import { clamp } from "./dom.js";

// A photograph of something drawn, as what a model of light strokes on black has learned from: cut out, centred, as
// large as the frame, light on black.

const FAINT = 0.1; // a stroke differs from its ground by this, of 1 from black to white, or it isn't seen
const STRONGEST = 0.003; // the share of pixels that are surely ink
const TIPS = 0.005; // the share of the strokes at each end that may stand out of the frame
const DUST = 0.04; // of the largest part, or a part of the strokes is dust
const REACH = 1 / 8; // of the longer side: what is as wide is ground, not a stroke
const LEAST = 0.02; // of the strokes must lie inside, or the edge cuts the drawing itself
const WIDTHS = [1.5, 1.7]; // to which lines are brought, in pixels of the picture

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

// Strokes (height, width) that hang together, as lists of places: each with whether it comes in from the edge.
function partsIn(strokes, [height, width]) {
  const isLeft = strokes.slice();
  const isEdge = (i) => i < width || i >= width * (height - 1) || i % width === 0 || i % width === width - 1;
  return [...strokes.keys()].flatMap((start) => {
    if (!isLeft[start]) return [];
    isLeft[start] = 0;
    const places = [start];
    for (const i of places) {
      for (const next of [i - 1, i + 1, i - width, i + width]) {
        if (!isLeft[next]) continue;
        isLeft[next] = 0;
        places.push(next);
      }
    }
    return { places, isAtEdge: places.some(isEdge) };
  });
}

// Strokes without dust, and without what comes in from the edge, such as a desk or ruled lines, if there is more.
function inside(strokes, size) {
  const parts = partsIn(strokes, size);
  const total = (some) => some.reduce((sum, { places }) => sum + places.length, 0);
  const within = parts.filter(({ isAtEdge }) => !isAtEdge);
  const left = total(within) > LEAST * total(parts) ? within : parts;
  const most = Math.max(...left.map(({ places }) => places.length));
  const out = strokes.map(() => 0);
  for (const { places } of left) if (places.length > DUST * most) for (const i of places) out[i] = 1;
  return out;
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
function boxOf(strokes, width, [H, W]) {
  const places = [...strokes.keys()].filter((i) => strokes[i]);
  const ends = (sides) =>
    [Math.floor(TIPS * sides.length), Math.ceil((1 - TIPS) * sides.length) - 1].map((i) => sides[i]);
  const [top, bottom] = ends(Uint16Array.from(places, (i) => Math.floor(i / width)).sort());
  const [left, right] = ends(Uint16Array.from(places, (i) => i % width).sort());
  const scale = Math.max((bottom - top + 1) / H, (right - left + 1) / W);
  return { scale, y: (top + bottom + 1) / 2, x: (left + right + 1) / 2 };
}

// Levels grey (height, width) from 0 to 1 -> {picture (1, H, W), isDark: dark strokes on a light ground, wider: the
// change of the lines' width, in pixels of the picture}; null: nothing stands out.
export function cutOut(grey, size, shape) {
  const [, H, W] = shape;
  const width = size[1];
  const { strength, isDark } = inkOf(grey, size, Math.round(REACH * Math.max(...size)));
  const strongest = strength.toSorted()[Math.floor((1 - STRONGEST) * strength.length)];
  if (strongest < FAINT) return null;
  const strokes = inside(
    strength.map((v) => Number(v >= strongest / 2)),
    size,
  );
  const { scale } = boxOf(strokes, width, [H, W]);
  if (scale < 1) return null; // a speck
  const wide = widthOf(strokes, size) / scale;
  const wider = clamp(wide, ...WIDTHS) - wide;
  const lines = widened(strokes, size, (wider / 2) * scale);
  const box = boxOf(lines, width, [H, W]);
  // Each pixel is the share of it that is covered, as in the digits that are learned from.
  const picture = new Float32Array(H * W);
  lines.forEach((v, i) => {
    const y = Math.floor((Math.floor(i / width) + 0.5 - box.y) / box.scale + H / 2);
    const x = Math.floor(((i % width) + 0.5 - box.x) / box.scale + W / 2);
    if (y >= 0 && y < H && x >= 0 && x < W) picture[y * W + x] += v / box.scale ** 2;
  });
  return { picture: picture.map((v) => Math.min(1, v)), isDark, wider };
}
