// What a row of E, a hidden unit or a head answers to: the patches that got most from it, in pictures it was tried on.

import { blockName, headName } from "./changes.js";
import { bytes, drawFrame, make } from "./dom.js";
import { draw } from "./page.js";

const SIDE = 100; // pixels of a shown picture, about

// A part's number in the list: rows of E, then each block's hidden units and heads.
const NUMBERS = {
  row: (s) => s.rowOfE,
  unit: ({ D, M, h, layer, unit }) => D + layer * (M + h) + unit,
  head: ({ D, M, h, layer, head }) => D + layer * (M + h) + M + head,
};
const NAMES = {
  row: (s) => `Number ${s.rowOfE} of the token`,
  unit: (s) => `Unit ${s.unit} of ${blockName(s.layer)}`,
  head: (s) => `In ${headName(s.head)} of ${blockName(s.layer)},`,
};
const DOES = {
  row: () => "is largest for these patches",
  unit: () => "is excited most by these patches",
  head({ token, prefix }) {
    const other = token < prefix ? "" : " (not your patch)";
    return `${prefix ? `the class token${other} looks` : "tokens look"} most at these patches`;
  },
};

// The picture with a frame around the patch, so that all of it is seen.
function drawSeen({ sizes, config, meaning }, sheet, colour, canvas, [picture, patch]) {
  const { W, H, columns } = sizes;
  const ratio = window.devicePixelRatio || 1;
  const scale = Math.max(1, Math.round((SIDE * ratio) / Math.max(W, H)));
  const edge = Math.ceil(5 * ratio); // that a frame needs beside the picture
  Object.assign(canvas, { width: W * scale + 2 * edge, height: H * scale + 2 * edge });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  const { across } = meaning;
  const [x, y] = [W * (picture % across), H * Math.floor(picture / across)];
  context.drawImage(sheet, x, y, W, H, edge, edge, W * scale, H * scale);
  const [P, Q] = config.patch_size;
  const [left, top] = [(patch % columns) * Q, Math.floor(patch / columns) * P];
  const outside = 4 * ratio;
  const corner = [left, top].map((side) => edge + side * scale - outside);
  drawFrame(context, [...corner, Q * scale + 2 * outside, P * scale + 2 * outside], colour, 3);
}

// Fills what the open station has of it.
function drawMeaning({ $$, model, state, colourOf }, scene, sheet, places) {
  const { shown, count } = model.meaning;
  for (const step of $$(`[data-station="${state.station}"] [data-meaning]`)) {
    const kind = step.dataset.meaning;
    const start = 2 * shown * NUMBERS[kind](scene);
    const text = `${NAMES[kind](scene)} ${DOES[kind](scene)}`;
    step.querySelector("h4").textContent = text;
    step.querySelector(".note span").textContent = `${count} pictures`;
    step.querySelectorAll("canvas").forEach((canvas, i) => {
      const [picture, patch] = places.subarray(start + 2 * i, start + 2 * i + 2);
      drawSeen(model, sheet, colourOf("--query"), canvas, [picture, patch]);
      canvas.setAttribute("role", "img");
      const place = model.placeOf(model.sizes.prefix + patch);
      canvas.setAttribute("aria-label", `${text}: ${i + 1} of ${shown}, at ${place}`);
    });
  }
}

export function buildMeaning(page) {
  const { $$, model, drawers } = page;
  if (!model.meaning) {
    for (const element of $$("[data-meaning]")) element.remove(); // there were too few pictures to try the model on
    return;
  }
  const { shown } = model.meaning;
  const places = new Uint16Array(bytes(model.meaning.places).buffer); // (parts, shown, 2): a picture, a patch
  for (const place of $$("[data-meaning] .example-patches"))
    place.append(...Array.from({ length: shown }, () => make("canvas")));
  const sheet = make("img", { src: model.meaning.sheet });
  drawers.push((scene) => {
    if (sheet.naturalWidth) drawMeaning(page, scene, sheet, places);
  });
  sheet.decode().then(
    () => draw(page),
    () => {},
  );
}
