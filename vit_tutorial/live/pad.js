// A pad to draw on, with a mouse, a finger or the keyboard.

import { ARROWS, clamp, hasModifier, sharpen } from "./dom.js";
import { Ink } from "./ink.js";
import { paint } from "./pictures.js";

const SMALLEST_PEN = 6; // pixels of the screen: the radius of the ring that shows where the keyboard's pen is
const KEY_STEP = 0.5; // pixels of a small picture that an arrow key moves the pen
const SMALL = 16; // pixels: in a picture that is higher an arrow key goes further

// The ring that shows where the keyboard's pen is.
function drawPen(context, { canvas, ink, pen }) {
  const { width, height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  const size = Math.max((ink.radius / ink.width) * width, SMALLEST_PEN * ratio);
  context.beginPath();
  context.arc((pen.x / ink.width) * width, (pen.y / ink.height) * height, size, 0, 2 * Math.PI);
  context.strokeStyle = "#000000";
  context.lineWidth = 5 * ratio;
  context.stroke();
  context.strokeStyle = pen.isDown ? "#E69F00" : "#ffffff";
  context.lineWidth = 2.5 * ratio;
  context.stroke();
}

function drawPad(pad) {
  const { canvas, ink, pen, shown, tell } = pad;
  const [C, H, W] = ink.shape;
  const other = pen.isDown || pen.isShown ? null : tell.arranged();
  paint(shown, other ?? ink.values, other ? [C, H, W] : [C, ink.height, ink.width]);
  const context = sharpen(canvas);
  if (!context) return;
  context.imageSmoothingEnabled = false;
  context.drawImage(shown, 0, 0, canvas.width, canvas.height);
  if (pen.isShown) drawPen(context, pad);
}

function movePen(pad, x, y) {
  const { ink, pen, tell } = pad;
  if (pen.isDown) ink.stroke([pen.x, pen.y], [x, y], pen.level);
  Object.assign(pen, { x, y });
  drawPad(pad);
  if (pen.isDown) tell.drawn(ink.picture(), false);
}

function clearPad(pad) {
  pad.ink.clear();
  drawPad(pad);
  pad.tell.drawn(pad.ink.picture(), true);
}

function listenToPointer(pad) {
  const { canvas, ink, pen, tell } = pad;

  function placeOf({ clientX, clientY }) {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    return [((clientX - left) / width) * ink.width, ((clientY - top) / height) * ink.height];
  }

  function lift({ pointerId }) {
    if (!pen.isDown || !canvas.hasPointerCapture(pointerId)) return;
    pen.isDown = false;
    tell.drawn(ink.picture(), true);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    [pen.x, pen.y] = placeOf(event);
    Object.assign(pen, { isDown: true, isShown: false });
    tell.begun();
    movePen(pad, pen.x, pen.y);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pen.isDown && canvas.hasPointerCapture(event.pointerId)) movePen(pad, ...placeOf(event));
  });
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
}

// Space puts the pen down and lifts it.
function switchPen({ ink, pen, tell }) {
  pen.isDown = !pen.isDown;
  if (pen.isDown) tell.begun();
  else tell.drawn(ink.picture(), true);
}

function listenToKeys(pad) {
  const { canvas, ink, pen, tell } = pad;
  const H = ink.shape[1];
  const step = KEY_STEP * Math.max(1, H / SMALL) * ink.fine;
  canvas.addEventListener("keydown", (event) => {
    if (hasModifier(event) || !(event.key in ARROWS || event.key === " " || event.key === "Delete")) return;
    event.preventDefault();
    pen.isShown = true;
    if (event.key === "Delete") {
      tell.begun();
      clearPad(pad);
      return;
    }
    if (event.key === " ") switchPen(pad);
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    movePen(pad, clamp(pen.x + right * step, 0, ink.width), clamp(pen.y + down * step, 0, ink.height));
    const where = `row ${(pen.y / ink.fine).toFixed(1)}, column ${(pen.x / ink.fine).toFixed(1)} of ${H}`;
    tell.say(`Pen ${pen.isDown ? "down" : "up"}, ${where}`);
  });
  canvas.addEventListener("blur", () => {
    if (pen.isDown && pen.isShown) tell.drawn(ink.picture(), true);
    Object.assign(pen, { isDown: false, isShown: false });
    drawPad(pad);
  });
}

// tell has four functions. begun(): a line begins; drawn(picture, isFinal): there is more of it, or the pen was lifted;
// say(text), aloud; arranged(): the picture with its patches moved or hidden, which is shown while nobody draws; null
// where none is.
export function drawingPad(canvas, shape, white, tell) {
  const ink = new Ink(shape, white);
  const pen = { x: ink.width / 2, y: ink.height / 2, isDown: false, level: 1, isShown: false };
  const pad = { canvas, ink, pen, tell, shown: new OffscreenCanvas(ink.width, ink.height) };
  listenToPointer(pad);
  listenToKeys(pad);
  new ResizeObserver(() => drawPad(pad)).observe(canvas);
  return {
    show(values) {
      ink.replace(values);
      drawPad(pad);
    },
    draw: () => drawPad(pad),
    clear: () => clearPad(pad),
    frame: () => ink.frame(),
    ink: () => ink.values.slice(),
    isFull: () => ink.isFull(),
    isEmpty: () => ink.isEmpty(),
    choose(level) {
      pen.level = level; // 1 is white
    },
  };
}
