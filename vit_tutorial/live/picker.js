// The picture in patches: one token is chosen, and every station follows it.

import { ARROWS, cellBox, cellUnder, clamp, drawFrame, hasModifier, largest, make, sharpen } from "../pages/page.js";
import { paint, rearrange } from "./pictures.js";
import { isTold } from "./story.js";

// The picture cut into patches, the chosen one in a frame.
export function drawPatches(page, canvas) {
  const { data, config, state, sizes, at } = page;
  const { H, W, N, prefix, columns } = sizes;
  const context = canvas.getContext("2d");
  page.seen ??= new OffscreenCanvas(W, H);
  paint(page.seen, rearrange(state.picture, data, state.changes), config.shape);
  context.imageSmoothingEnabled = false;
  const gap = Math.max(1, Math.round(canvas.width / columns / 24));
  const [P, Q] = config.patch_size;
  for (let n = 0; n < N; n++) {
    const [row, column] = at(n + prefix);
    const [x, y, w, h] = cellBox(canvas, config.grid, n);
    context.drawImage(page.seen, column * Q, row * P, Q, P, x + gap, y + gap, w - 2 * gap, h - 2 * gap);
  }
  if (state.token >= prefix) drawFrame(context, cellBox(canvas, config.grid, state.token - prefix), page.blue, 3);
}

// Lines from the followed token to what it attends to in a head, as wide as the weights: weights (T,).
export function drawLines(page, weights) {
  const { $, config, state, sizes, blue } = page;
  const canvas = $(".picker canvas");
  const context = canvas.getContext("2d");
  const middleOf = (token) => {
    if (token < sizes.prefix) return [0.1 * canvas.width, 0]; // its button is above the picture
    const [x, y, w, h] = cellBox(canvas, config.grid, token - sizes.prefix);
    return [x + w / 2, y + h / 2];
  };
  const widest = 0.3 * (canvas.width / sizes.columns);
  const most = largest(weights.subarray(sizes.prefix));
  context.strokeStyle = state.token < sizes.prefix ? getComputedStyle(page.host).getPropertyValue("--class") : blue;
  context.lineCap = "round";
  weights.forEach((weight, token) => {
    if (token < sizes.prefix) return;
    context.globalAlpha = (0.85 * weight) / most;
    context.lineWidth = (widest * weight) / most;
    context.beginPath();
    const [x, y] = middleOf(token);
    context.moveTo(...middleOf(state.token));
    context.lineTo(x + 0.01, y); // a dot where it looks at itself
    context.stroke();
  });
  context.globalAlpha = 1;
}

// With a frame around a pixel of the chosen patch, [row, column] in it, if one is pointed at.
export function drawPicker(page, pixel = null) {
  const { $, config, sizes, state } = page;
  const canvas = $(".picker canvas");
  if (!sharpen(canvas)) return;
  drawPatches(page, canvas);
  if (pixel) {
    const [row, column] = page.at(state.token).map((n, i) => n * config.patch_size[i] + pixel[i]);
    const colour = getComputedStyle(page.host).getPropertyValue("--position");
    drawFrame(canvas.getContext("2d"), cellBox(canvas, [sizes.H, sizes.W], row * sizes.W + column), colour, 3);
  }
  $(".picker .dot").classList.toggle("of-class-token", state.token < page.sizes.prefix);
  $(".special").classList.toggle("hidden", !isTold(page, "positions"));
  $(".picker .name").textContent = page.tokenName(state.token);
  $(".picker .place").textContent = page.placeOf(state.token);
  [...$(".special").children].forEach((button, token) => {
    button.ariaPressed = String(token === state.token);
  });
}

export function chooseToken(page, token) {
  if (token !== page.state.token) Object.assign(page.state, { token, previous: page.state.token });
  page.draw();
  page.say(`${page.tokenName(token)}, ${page.placeOf(token)}`);
}

// The token beside the chosen one; those before the patches are above them.
function neighbour({ sizes, state, at }, [down, right]) {
  const { prefix, rows, columns } = sizes;
  const [row, column] = state.token < prefix ? [-1, 0] : at(state.token);
  if (row + down < 0 && prefix) return 0;
  return prefix + clamp(row + down, 0, rows - 1) * columns + clamp(column + right, 0, columns - 1);
}

export function buildPicker(page) {
  const { $, config, sizes } = page;
  const canvas = $(".picker canvas");
  canvas.style.aspectRatio = `${sizes.W} / ${sizes.H}`;
  if (sizes.prefix) {
    const mark = make("i", { textContent: "CLS", ariaHidden: "true" });
    const onclick = () => chooseToken(page, 0);
    $(".special").append(
      make("button", { type: "button", onclick }, mark, make("span", { textContent: "class token" })),
    );
  }
  canvas.addEventListener("click", (event) => chooseToken(page, sizes.prefix + cellUnder(canvas, config.grid, event)));
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in ARROWS) || hasModifier(event)) return;
    event.preventDefault();
    chooseToken(page, neighbour(page, ARROWS[event.key]));
  });
  new ResizeObserver(page.draw).observe(canvas);
}
