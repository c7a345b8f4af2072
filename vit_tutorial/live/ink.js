// The ink of the drawing pad: what was drawn, finer than the picture, so that strokes are smooth. Each pixel of the
// model's picture is a mean of its ink.

import { clamp } from "./dom.js";

const INK = 0.25; // and more is something drawn
const FULL = 0.9; // of the pad is drawn on: no drawing any more
const FILLED = 0.9; // of the frame's height or width: a drawing that is as large needs no enlarging
const CENTRED = 0.75; // pixels of the picture: a drawing that is as near to the middle needs no centring
const LARGEST = 3; // times a drawing is enlarged at most
const FINE = 64; // pixels of the pad along the longer side, at least
const DIGIT_PEN = 0.55; // pixels of the picture: the pen's radius where there is one channel
const PAINT_PEN = 1 / 26; // of the picture's longer side: the pen's radius for colours

// Strokes (height, width) from 0 to 1 with lines wider by a radius on each side; a negative one makes them narrower.
function widened(strokes, [height, width], radius) {
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

// How much of a pad's pixel (x, y) a line covers, from 0 to 1: all within the radius, fading over one pixel.
function coverOf([fromX, fromY], [toX, toY], radius, x, y) {
  const [dx, dy] = [toX - fromX, toY - fromY];
  const squaredLength = dx ** 2 + dy ** 2 || 1; // a point has none
  const along = clamp(((x + 0.5 - fromX) * dx + (y + 0.5 - fromY) * dy) / squaredLength, 0, 1);
  const distance = Math.hypot(x + 0.5 - fromX - along * dx, y + 0.5 - fromY - along * dy);
  return clamp(radius + 0.5 - distance, 0, 1);
}

// What was drawn for a picture of this shape; white: how many steps there are from black to white.
export class Ink {
  constructor([C, H, W], white) {
    this.shape = [C, H, W];
    this.white = white;
    this.fine = Math.max(1, Math.round(FINE / Math.max(H, W))); // pixels of the pad along one of the picture
    this.height = H * this.fine;
    this.width = W * this.fine;
    this.blank = C === 1 ? 0 : 0.5;
    this.radius = (C === 1 ? DIGIT_PEN : Math.max(H, W) * PAINT_PEN) * this.fine;
    this.values = new Float32Array(C * this.height * this.width);
  }

  // A line between two points [x, y]; level: 1 draws, 0 erases.
  stroke(from, to, level) {
    const { height, width, values, radius } = this;
    const reach = Math.ceil(radius + 1);
    const top = Math.max(0, Math.floor(Math.min(from[1], to[1]) - reach));
    const left = Math.max(0, Math.floor(Math.min(from[0], to[0]) - reach));
    const bottom = Math.min(height, Math.max(from[1], to[1]) + reach);
    const right = Math.min(width, Math.max(from[0], to[0]) + reach);
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const cover = coverOf(from, to, radius, x, y);
        for (let c = 0; c < this.shape[0]; c++) {
          const i = (c * height + y) * width + x;
          values[i] = level ? Math.max(values[i], cover) : Math.min(values[i], 1 - cover);
        }
      }
    }
  }

  clear() {
    this.values.fill(this.blank);
  }

  // A picture in place of what was drawn, or the ink of an earlier drawing.
  replace(values) {
    if (values.length === this.values.length) this.values.set(values);
    else this.values.forEach((_, i) => (this.values[i] = values[this.#pixelOf(i)]));
  }

  isFull() {
    return this.shape[0] === 1 && this.values.filter((v) => v >= INK).length > FULL * this.values.length;
  }

  isEmpty() {
    return this.shape[0] === 1 ? !this.#extent() : this.values.every((v) => v === this.blank);
  }

  // What of the pad the model sees, where that isn't all of it as it is: a drawing is centred, and as high or as wide
  // as the frame, as the digits that the model learned from are.
  frame() {
    const { height, width, fine } = this;
    const found = this.shape[0] === 1 ? this.#extent() : null;
    if (!found) return null;
    const filled = Math.max((found.bottom - found.top + 1) / height, (found.right - found.left + 1) / width);
    const y = (found.top + found.bottom) / 2;
    const x = (found.left + found.right) / 2;
    const away = Math.hypot(y - (height - 1) / 2, x - (width - 1) / 2) / fine; // in pixels of the picture
    if (filled >= FILLED && away < CENTRED) return null;
    return { y, x, scale: Math.max(filled < FILLED ? filled : 1, 1 / LARGEST) };
  }

  // The model's picture (C, H, W), in the steps that the samples have.
  picture() {
    const { values, height, width, radius, fine, white } = this;
    const seen = this.frame();
    const narrowed = seen && widened(values, [height, width], radius * (seen.scale - 1)); // enlarged: the pen's width
    const out = new Float32Array(this.shape[0] * this.shape[1] * this.shape[2]);
    values.forEach((v, i) => {
      out[this.#pixelOf(i)] += (seen ? this.#within(narrowed, seen, i) : v) / fine ** 2;
    });
    return out.map((v) => Math.round(white * v) / white);
  }

  // The pixel of the picture that number i of the ink lies in.
  #pixelOf(i) {
    const { height, width, fine } = this;
    const [, H, W] = this.shape;
    const c = Math.floor(i / (height * width));
    const y = Math.floor((i % (height * width)) / width);
    return (c * H + Math.floor(y / fine)) * W + Math.floor((i % width) / fine);
  }

  // What lies at place i of a frame, of one channel.
  #within(lines, { y, x, scale }, i) {
    const { height, width } = this;
    const row = Math.round(y + (Math.floor(i / width) - (height - 1) / 2) * scale);
    const column = Math.round(x + ((i % width) - (width - 1) / 2) * scale);
    return row >= 0 && row < height && column >= 0 && column < width ? lines[row * width + column] : 0;
  }

  // What was drawn on, in pixels of the pad; null: nothing.
  #extent() {
    const { height, width, values } = this;
    const found = { top: height, bottom: -1, left: width, right: -1 };
    for (let i = 0; i < height * width; i++) {
      if (values[i] < INK) continue;
      const y = Math.floor(i / width);
      const x = i % width;
      found.top = Math.min(found.top, y);
      found.bottom = Math.max(found.bottom, y);
      found.left = Math.min(found.left, x);
      found.right = Math.max(found.right, x);
    }
    return found.bottom < 0 ? null : found;
  }
}
