// A pad to draw on, finer than the picture, so that strokes are smooth: each pixel of the picture is a mean of its ink.

import { ARROWS, clamp, hasModifier, sharpen } from "./dom.js";
import { paint } from "./pictures.js";

const INK = 0.25; // and more is something drawn
const FULL = 0.9; // of the pad is drawn on: no drawing any more
const FILLED = 0.9; // of the frame's height or width: a drawing that is as large needs no enlarging
const LARGEST = 3; // times a drawing is enlarged at most
const FINE = 64; // pixels of the pad along the longer side, at least

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

// begun(): a line begins; drawn(picture, isFinal): there is more of it, or the pen was lifted; say(text), aloud;
// arranged(): the picture with its patches moved or hidden, which is shown while nobody draws; null where none is.
export function drawingPad(canvas, [C, H, W], white, { begun, drawn, arranged, say }) {
  const fine = Math.max(1, Math.round(FINE / Math.max(H, W)));
  const h = H * fine;
  const w = W * fine;
  const blank = C === 1 ? 0 : 0.5;
  const radius = (C === 1 ? 0.55 : Math.max(H, W) / 26) * fine;
  const ink = new Float32Array(C * h * w);
  const pen = { x: w / 2, y: h / 2, isDown: false, level: 1, isShown: false };
  const shown = new OffscreenCanvas(w, h);

  // Full within the radius, fading over one pixel of the pad.
  function stroke(fromX, fromY, toX, toY) {
    const reach = Math.ceil(radius + 1);
    const length = (toX - fromX) ** 2 + (toY - fromY) ** 2 || 1;
    const top = Math.max(0, Math.floor(Math.min(fromY, toY) - reach));
    const left = Math.max(0, Math.floor(Math.min(fromX, toX) - reach));
    const bottom = Math.min(h, Math.max(fromY, toY) + reach);
    const right = Math.min(w, Math.max(fromX, toX) + reach);
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const along = ((x + 0.5 - fromX) * (toX - fromX) + (y + 0.5 - fromY) * (toY - fromY)) / length;
        const part = clamp(along, 0, 1);
        const away = Math.hypot(x + 0.5 - fromX - part * (toX - fromX), y + 0.5 - fromY - part * (toY - fromY));
        const cover = clamp(radius + 0.5 - away, 0, 1);
        for (let c = 0; c < C; c++) {
          const i = (c * h + y) * w + x;
          ink[i] = pen.level ? Math.max(ink[i], cover) : Math.min(ink[i], 1 - cover);
        }
      }
    }
  }

  // The pixel of the picture that number i of the ink lies in.
  function pixelOf(i) {
    const c = Math.floor(i / (h * w));
    const y = Math.floor((i % (h * w)) / w);
    return (c * H + Math.floor(y / fine)) * W + Math.floor((i % w) / fine);
  }

  // What of the pad the model sees, where that isn't all of it as it is: a drawing is centred, and as high or as wide
  // as the frame, as the digits that the model learned from are.
  function frame() {
    const found = C === 1 ? extent() : null;
    if (!found) return null;
    const share = Math.max((found.bottom - found.top + 1) / h, (found.right - found.left + 1) / w);
    const y = (found.top + found.bottom) / 2;
    const x = (found.left + found.right) / 2;
    const away = Math.hypot(y - (h - 1) / 2, x - (w - 1) / 2) / fine; // in pixels of the picture
    if (share >= FILLED && away < 0.75) return null;
    return { y, x, scale: Math.max(share < FILLED ? share : 1, 1 / LARGEST) };
  }

  // The model's picture (C, H, W), in the steps that the samples have.
  function picture() {
    const seen = frame();
    const lines = seen ? widened(ink, [h, w], radius * (seen.scale - 1)) : ink; // as wide as the pen when enlarged
    const out = new Float32Array(C * H * W);
    ink.forEach((v, i) => {
      out[pixelOf(i)] += (seen ? within(lines, seen, i) : v) / fine ** 2;
    });
    return out.map((v) => Math.round(white * v) / white);
  }

  // What lies at place i of a frame, of one channel.
  function within(lines, { y, x, scale }, i) {
    const row = Math.round(y + (Math.floor(i / w) - (h - 1) / 2) * scale);
    const column = Math.round(x + ((i % w) - (w - 1) / 2) * scale);
    return row >= 0 && row < h && column >= 0 && column < w ? lines[row * w + column] : 0;
  }

  // A picture in place of what was drawn, or the ink of an earlier drawing.
  function show(values) {
    if (values.length === ink.length) ink.set(values);
    else ink.forEach((_, i) => (ink[i] = values[pixelOf(i)]));
    draw();
  }

  // What was drawn on, in pixels of the pad; null: nothing.
  function extent() {
    const found = { top: h, bottom: -1, left: w, right: -1 };
    for (let i = 0; i < h * w; i++) {
      if (ink[i] < INK) continue;
      const y = Math.floor(i / w);
      const x = i % w;
      found.top = Math.min(found.top, y);
      found.bottom = Math.max(found.bottom, y);
      found.left = Math.min(found.left, x);
      found.right = Math.max(found.right, x);
    }
    return found.bottom < 0 ? null : found;
  }

  function clear() {
    ink.fill(blank);
    draw();
    drawn(picture(), true);
  }

  function drawPen(context) {
    const { width, height } = canvas;
    const ratio = window.devicePixelRatio || 1;
    context.beginPath();
    const size = Math.max((radius / w) * width, 6 * ratio);
    context.arc((pen.x / w) * width, (pen.y / h) * height, size, 0, 2 * Math.PI);
    context.strokeStyle = "#000000";
    context.lineWidth = 5 * ratio;
    context.stroke();
    context.strokeStyle = pen.isDown ? "#E69F00" : "#ffffff";
    context.lineWidth = 2.5 * ratio;
    context.stroke();
  }

  function draw() {
    const other = pen.isDown || pen.isShown ? null : arranged();
    paint(shown, other ?? ink, other ? [C, H, W] : [C, h, w]);
    const context = sharpen(canvas);
    if (!context) return;
    context.imageSmoothingEnabled = false;
    context.drawImage(shown, 0, 0, canvas.width, canvas.height);
    if (pen.isShown) drawPen(context);
  }

  function move(x, y) {
    if (pen.isDown) stroke(pen.x, pen.y, x, y);
    Object.assign(pen, { x, y });
    draw();
    if (pen.isDown) drawn(picture(), false);
  }

  function under({ clientX, clientY }) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [((clientX - left) / width) * w, ((clientY - top) / height) * h];
  }

  function lift({ pointerId }) {
    if (!pen.isDown || !canvas.hasPointerCapture(pointerId)) return;
    pen.isDown = false;
    drawn(picture(), true);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    [pen.x, pen.y] = under(event);
    Object.assign(pen, { isDown: true, isShown: false });
    begun();
    move(pen.x, pen.y);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pen.isDown && canvas.hasPointerCapture(event.pointerId)) move(...under(event));
  });
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("keydown", (event) => {
    if (hasModifier(event) || !(event.key in ARROWS || event.key === " " || event.key === "Delete")) return;
    event.preventDefault();
    pen.isShown = true;
    if (event.key === "Delete") {
      begun();
      clear();
      return;
    }
    if (event.key === " ") {
      pen.isDown = !pen.isDown;
      if (pen.isDown) begun();
      else drawn(picture(), true);
    }
    const step = 0.5 * Math.max(1, H / 16) * fine;
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    move(clamp(pen.x + right * step, 0, w), clamp(pen.y + down * step, 0, h));
    const where = `row ${(pen.y / fine).toFixed(1)}, column ${(pen.x / fine).toFixed(1)} of ${H}`;
    say(`Pen ${pen.isDown ? "down" : "up"}, ${where}`);
  });
  canvas.addEventListener("blur", () => {
    if (pen.isDown && pen.isShown) drawn(picture(), true);
    Object.assign(pen, { isDown: false, isShown: false });
    draw();
  });
  new ResizeObserver(draw).observe(canvas);

  return {
    show,
    draw,
    frame,
    clear,
    ink: () => ink.slice(),
    isFull: () => C === 1 && ink.filter((v) => v >= INK).length > FULL * ink.length,
    isEmpty: () => (C === 1 ? !extent() : ink.every((v) => v === blank)),
    choose(level) {
      pen.level = level; // 1 is white
    },
  };
}
