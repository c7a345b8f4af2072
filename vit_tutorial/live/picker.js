// The picture in patches: one token is chosen, and every station follows it.

import { ARROWS, cellBox, cellUnder, clamp, drawFrame, hasModifier, make, sharpen } from "./dom.js";
import { draw } from "./page.js";
import { paint, rearrange } from "./pictures.js";
import { hasReached } from "./story.js";

// Patch n of the picture, as large as a box.
export function drawPatch({ arranged, model: { config, sizes } }, context, n, box) {
  const [P, Q] = config.patch_size;
  const [row, column] = [Math.floor(n / sizes.columns), n % sizes.columns];
  context.drawImage(arranged, column * Q, row * P, Q, P, ...box);
}

// The picture cut into patches, the chosen one in a frame.
export function drawPatches(page, canvas) {
  const { state, colourOf } = page;
  const { config, sizes } = page.model;
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  const gap = Math.max(1, Math.round(canvas.width / sizes.columns / 24));
  for (let n = 0; n < sizes.N; n++) {
    const [x, y, w, h] = cellBox(canvas, config.grid, n);
    drawPatch(page, context, n, [x + gap, y + gap, w - 2 * gap, h - 2 * gap]);
  }
  if (state.token >= sizes.prefix) {
    drawFrame(context, cellBox(canvas, config.grid, state.token - sizes.prefix), colourOf("--query"), 3);
  }
}

// With a frame around a pixel of the chosen patch, [row, column] in it, if one is pointed at.
export function drawPicker(page, pixel = null) {
  const { $, model, state, arranged, colourOf } = page;
  const { config, sizes, at, tokenName, placeOf } = model;
  const canvas = $(".picker canvas");
  const picture = rearrange(state.picture, model, state.changes);
  for (const place of [arranged, $(".tour-picture")]) paint(place, picture, config.shape);
  if (!sharpen(canvas)) return;
  drawPatches(page, canvas);
  if (pixel) {
    const [row, column] = at(state.token).map((n, i) => n * config.patch_size[i] + pixel[i]);
    const cell = cellBox(canvas, [sizes.H, sizes.W], row * sizes.W + column);
    drawFrame(canvas.getContext("2d"), cell, colourOf("--position"), 3);
  }
  $(".picker .dot").classList.toggle("class-token-dot", state.token < sizes.prefix);
  $(".class-token-choice").classList.toggle("hidden", !hasReached(page, "positions"));
  $(".picker .name").textContent = tokenName(state.token);
  $(".picker .place").textContent = placeOf(state.token);
  [...$(".class-token-choice").children].forEach((button, token) => {
    button.ariaPressed = String(token === state.token);
  });
}

// The token that the page follows.
export function chooseToken(page, token) {
  const { state, model, say } = page;
  say(`${model.tokenName(token)}, ${model.placeOf(token)}`);
  if (token !== state.token) Object.assign(state, { token, previous: state.token, guess: null });
  draw(page);
}

// The token beside the chosen one; those before the patches are above them.
function neighbour({ state: { token }, model: { at, sizes } }, [down, right]) {
  const { prefix, rows, columns } = sizes;
  const [row, column] = token < prefix ? [-1, 0] : at(token);
  if (token < prefix && right > 0) return prefix; // from the class token to the first patch
  if (row + down < 0 && prefix) return 0;
  return prefix + clamp(row + down, 0, rows - 1) * columns + clamp(column + right, 0, columns - 1);
}

export function buildPicker(page) {
  const { $, $$, state, drawers, previews } = page;
  const { config, sizes } = page.model;
  const canvas = $(".picker canvas");
  canvas.style.aspectRatio = `${sizes.W} / ${sizes.H}`;
  if (sizes.prefix) {
    const onclick = () => chooseToken(page, 0);
    $(".class-token-choice").append(make("button", { type: "button", textContent: "class token", onclick }));
  }
  canvas.addEventListener("click", (event) => chooseToken(page, sizes.prefix + cellUnder(canvas, config.grid, event)));
  for (const picture of [canvas, $(".stage")]) {
    picture.addEventListener("keydown", (event) => {
      if (hasModifier(event) || !(event.key in ARROWS)) return;
      event.preventDefault();
      chooseToken(page, neighbour(page, ARROWS[event.key]));
    });
  }
  previews.push(() => drawPicker(page));
  drawers.push(() => {
    drawPicker(page);
    const isPatch = state.token >= sizes.prefix;
    for (const element of $$(".only-for-patches")) element.classList.toggle("hidden", !isPatch);
    for (const element of $$(".only-for-class-token")) element.classList.toggle("hidden", isPatch);
  });
  new ResizeObserver(() => draw(page)).observe(canvas);
}
