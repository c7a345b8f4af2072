import { patchify, unpatchify } from "./model.js";

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
  const found = photographed(image, data, name);
  image.close();
  return found;
}

// What of a picture the model's preprocessing keeps: its middle in the model's shape, or a fraction of that. A model that
// squashes pictures keeps that fraction of the picture's own shape.
function cropBox({ width, height }, { crop, squash, config }) {
  const [, H, W] = config.shape;
  const unit = Math.min(height / H, width / W);
  const box = squash
    ? { width: width * crop, height: height * crop }
    : { width: W * unit * crop, height: H * unit * crop };
  return { left: (width - box.width) / 2, top: (height - box.height) / 2, ...box };
}

// A photograph as the model takes it, and what was done to it. The browser resizes it, nearly as the package does.
function photographed(image, data, name) {
  const [C, H, W] = data.config.shape;
  const { left, top, width, height } = cropBox(image, data);
  const context = new OffscreenCanvas(W, H).getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, W, H);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, left, top, width, height, 0, 0, W, H);
  const rgba = context.getImageData(0, 0, W, H).data;
  const colour = (pixel, c) => rgba[4 * pixel + c] / 255;
  const grey = (pixel) => LUMA.reduce((sum, weight, c) => sum + weight * colour(pixel, c), 0);
  const picture = Float32Array.from({ length: C * H * W }, (_, i) => {
    return C === 1 ? grey(i) : colour(i % (H * W), Math.floor(i / (H * W)));
  });
  const kept = (width * height) / (image.width * image.height);
  const cut = kept < 0.995 ? `cut to its middle (${Math.round(100 * kept)} % of it), and ` : "";
  return { picture, done: `${name}, ${cut}made ${W} × ${H} pixels, as the model takes it.` };
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

// Values as pixels of a colour map, which it returns: fraction(value) is in [0, 1].
export function tint(canvas, values, columns, colours, fraction) {
  const rows = values.length / columns;
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  const drawn = new Uint32Array(image.data.buffer);
  for (let i = 0; i < values.length; i++) drawn[i] = colours[Math.round(255 * fraction(values[i]))];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return drawn;
}
