import { clamp } from "../pages/page.js";
import { patchify, unpatchify } from "./model.js";
import { cutOut } from "./paper.js";

// A picture is a Float32Array (C, H, W) with numbers in [0, 1]; the model takes (x - mean) / std.

const LUMA = [0.299, 0.587, 0.114]; // how bright red, green and blue look
// Of a photograph; more would make a phone's browser give up.
const MOST_PIXELS = 40e6;
const MOST_BYTES = 100e6;

export function normalise(picture, { mean, std, config }) {
  const [, H, W] = config.shape;
  return Float64Array.from(picture, (v, i) => (v - mean[Math.floor(i / (H * W))]) / std[Math.floor(i / (H * W))]);
}

// Patch n of the new picture is patch order[n] of the old one; a hidden one has the mean colour, so the model sees 0.
export function rearrange(picture, { mean, config }, { order, hidden = [] }) {
  if (!order && !hidden.length) return picture;
  const { shape, patch_size, patches } = config;
  const old = patchify(picture, shape, patch_size);
  const length = old.length / patches;
  const out = old.slice();
  order?.forEach((from, n) => out.set(old.subarray(from * length, (from + 1) * length), n * length));
  for (const n of hidden) {
    for (let i = 0; i < length; i++) out[n * length + i] = mean[Math.floor(i / (length / shape[0]))];
  }
  return unpatchify(out, shape, patch_size);
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
// How far each reaches, and its weight at a distance.
const KERNELS = {
  bilinear: [1, (x) => 1 - x],
  bicubic: [2, (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2)],
  lanczos: [3, (x) => sinc(x) * sinc(x / 3)],
};

// As Pillow does it, along one axis: which of the old numbers each new one is made of, and in which shares.
function kernels(start, length, size, limit, interpolation) {
  return Array.from({ length: size }, (_, i) => {
    const centre = start + ((i + 0.5) * length) / size;
    if (interpolation === "nearest") return { first: Math.min(Math.floor(centre), limit - 1), shares: [1] };
    const [reach, weight] = KERNELS[interpolation];
    const scale = Math.max(length / size, 1);
    const first = Math.max(0, Math.floor(centre - reach * scale + 0.5));
    const end = Math.min(limit, Math.floor(centre + reach * scale + 0.5));
    const away = (j) => Math.abs((first + j + 0.5 - centre) / scale);
    const shares = Array.from({ length: end - first }, (_, j) => (away(j) < reach ? weight(away(j)) : 0));
    const sum = shares.reduce((x, y) => x + y, 0);
    return { first, shares: shares.map((share) => share / sum) };
  });
}

// A box of an image's channel (height, width), levels from 0 to 255, as (H, W): first across, then down.
function resize(channel, [height, width], box, [H, W], interpolation) {
  const across = kernels(box.left, box.width, W, width, interpolation);
  const down = kernels(box.top, box.height, H, height, interpolation);
  const level = (v) => clamp(Math.round(v), 0, 255);
  const wide = new Float32Array(height * W);
  const out = new Float32Array(H * W);
  for (let y = 0; y < height; y++) {
    across.forEach(({ first, shares }, x) => {
      wide[y * W + x] = level(shares.reduce((sum, share, j) => sum + share * channel[y * width + first + j], 0));
    });
  }
  down.forEach(({ first, shares }, y) => {
    for (let x = 0; x < W; x++) {
      out[y * W + x] = level(shares.reduce((sum, share, j) => sum + share * wide[(first + j) * W + x], 0));
    }
  });
  return out;
}

const half = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)); // to the even number, as Python rounds

// The size to which a picture (height, width) is resized, so that it covers (h, w).
function resizedTo([height, width], [h, w], squash) {
  if (squash) return [h, w];
  if (h === w) return [height, width].map((side) => Math.floor((h * side) / Math.min(height, width)));
  const scale = Math.max(h / height, w / width);
  return [half(height * scale), half(width * scale)];
}

// What of a picture (height, width) the model's preprocessing keeps.
function cropBox([height, width], { crop, squash, config }) {
  const [, H, W] = config.shape;
  if (crop === "none") return { left: 0, top: 0, width, height };
  if (crop === "center") {
    const unit = Math.min(height / H, width / W);
    return { left: (width - W * unit) / 2, top: (height - H * unit) / 2, width: W * unit, height: H * unit };
  }
  // The whole picture resized, so that the model's size is a share of it; then its middle.
  const h = Math.floor(H / crop + 1e-6);
  const w = Math.floor(W / crop + 1e-6);
  const [rows, columns] = resizedTo([height, width], [h, w], squash);
  const y = height / rows;
  const x = width / columns;
  return { left: half((columns - W) / 2) * x, top: half((rows - H) / 2) * y, width: W * x, height: H * y };
}

// A photograph's pixels as the model takes them: cropped, resized, and grey if it is. rgba: (height, width, 4).
export function fitPhoto(rgba, size, data) {
  const [C, H, W] = data.config.shape;
  const box = cropBox(size, data);
  const channels = [0, 1, 2].map((c) =>
    Float32Array.from({ length: size[0] * size[1] }, (_, i) => {
      const opaque = rgba[4 * i + 3] / 255; // on white, as the package does
      return Math.round(rgba[4 * i + c] * opaque + 255 * (1 - opaque));
    }),
  );
  const small = channels.map((channel) => resize(channel, size, box, [H, W], data.interpolation)); // 3 times (H, W)
  const grey = () => small[0].map((_, i) => LUMA.reduce((sum, share, c) => sum + share * small[c][i], 0));
  const out = C === 1 ? [grey()] : small;
  return Float32Array.from(
    out.flatMap((channel) => [...channel]),
    (level) => level / 255,
  ); // (C, H, W)
}

// A file as {picture (C, H, W) for the model, done: what was done to it, as a sentence}.
// Throws an Error with a sentence for the reader where it can't be one.
export async function readPhoto(file, data) {
  const name = file.name || "What you pasted";
  if (file.size > MOST_BYTES) {
    throw new Error(`${name} has ${Math.round(file.size / 1e6)} MB, which is too much: at most 100.`);
  }
  const image = await createImageBitmap(file).catch(() => {
    const isImage = file.type.startsWith("image/");
    const why = isImage ? "is damaged, or of a kind that your browser can’t read" : "is not a picture";
    throw new Error(`${name} ${why}. Try a JPEG or a PNG.`);
  });
  const { width, height } = image;
  if (width * height > MOST_PIXELS) {
    image.close();
    const megapixels = Math.round((width * height) / 1e6);
    throw new Error(`${name} has ${megapixels} megapixels, which is too many: at most 40. Make it smaller first.`);
  }
  const found = data.config.shape[0] === 1 ? drawnOn(image, data, name) : photographed(image, data, name);
  image.close();
  return found;
}

// An image's pixels (h, w, 4), on white, with this many along its longer side.
function pixelsOfImage(image, side) {
  const scale = side / Math.max(image.width, image.height);
  const w = Math.max(1, Math.round(image.width * scale));
  const h = Math.max(1, Math.round(image.height * scale));
  const context = new OffscreenCanvas(w, h).getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, w, h);
  return { rgba: context.getImageData(0, 0, w, h).data, size: [h, w] };
}

// A photograph as the model takes it, and what was done to it.
function photographed(image, data, name) {
  const { rgba, size } = pixelsOfImage(image, Math.min(2048, Math.max(image.width, image.height)));
  const [, H, W] = data.config.shape;
  const { width, height } = cropBox(size, data);
  const kept = (width * height) / (size[0] * size[1]);
  const cut = kept < 0.995 ? `cut to its middle (${Math.round(100 * kept)} % of it), and ` : "";
  return {
    picture: fitPhoto(rgba, size, data),
    done: `${name}, ${cut}made ${W} × ${H} pixels, as the model takes it.`,
  };
}

// A drawing on paper, or on a screen, as the model takes it, and what was done to it.
function drawnOn(image, data, name) {
  const { rgba, size } = pixelsOfImage(image, 256);
  const grey = Float32Array.from({ length: size[0] * size[1] }, (_, i) => {
    const opaque = rgba[4 * i + 3] / 255;
    return LUMA.reduce((sum, share, c) => sum + (share * (rgba[4 * i + c] * opaque + 255 * (1 - opaque))) / 255, 0);
  });
  const found = cutOut(grey, size, data.config.shape);
  if (!found)
    throw new Error(`${name} shows nothing that stands out from its ground. Try a thicker pen, or more light.`);
  const [, H, W] = data.config.shape;
  const turned = found.isDark ? "turned from dark on light to light on dark, " : "";
  const lines = found.wider > 0.05 ? "its lines made wider, " : found.wider < -0.05 ? "its lines made thinner, " : "";
  const fitted = `cut out, moved to the middle, and made ${W} × ${H} pixels, as the pictures it learned from`;
  return { picture: found.picture, done: `${name}: ${turned}${lines}${fitted}.` };
}

// A picture (C, H, W) on a canvas of H x W pixels.
export function paint(canvas, picture, [C, H, W]) {
  if (canvas.width !== W || canvas.height !== H) Object.assign(canvas, { width: W, height: H });
  const image = new ImageData(W, H);
  for (let i = 0; i < H * W; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = Math.round(255 * picture[(C === 1 ? 0 : c) * H * W + i]);
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Values as pixels of a colour map, which it returns: share(value) is in [0, 1].
export function tint(canvas, values, columns, colours, share) {
  const rows = values.length / columns;
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const drawn = new Uint32Array(image.data.buffer);
  for (let i = 0; i < values.length; i++) drawn[i] = colours[Math.round(255 * share(values[i]))];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return drawn;
}
