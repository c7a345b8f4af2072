// The small pictures on the map: what goes in, the followed patch, the tokens, where each head looks, what is answered.

import { best } from "./answer.js";
import { largestSize, percent, rowOf } from "./cells.js";
import { blockName } from "./changes.js";
import { largest, sharpen } from "./dom.js";
import { lens } from "./model.js";
import { drawPatches } from "./picker.js";
import { paint, tint } from "./pictures.js";

// Where the chosen token looks.
export function tintAttention(canvas, pixels, { token, T, prefix, columns }, { weights }) {
  const toPatches = rowOf(weights, token, T).subarray(prefix);
  const most = largest(toPatches);
  tint(canvas, toPatches, columns, pixels.heat, (weight) => weight / most);
}

const LOOKS = {
  picture(canvas, _, { picture, config }) {
    paint(canvas, picture, config.shape);
  },
  patches(canvas, page) {
    if (sharpen(canvas)) drawPatches(page, canvas);
  },
  tokens(canvas, { model: { pixels } }, { run, D }) {
    const { tokens } = run.embed;
    const most = 0.5 * largestSize(tokens);
    tint(canvas, tokens, D, pixels.signed, (v) => Math.min(1, Math.max(0, 0.5 + (0.5 * v) / most)));
  },
};

export function drawThumbnails(page, scene, parts) {
  const { run, weights, config, classes, isBlockOn } = scene;
  const answers = lens(run, weights, config);
  for (const { button, look, head, layer, step } of parts) {
    const canvas = button.querySelector("canvas");
    if (look === "answer") button.textContent = classes[best(run)];
    else if (look) LOOKS[look](canvas, page, scene);
    if (head !== undefined) {
      canvas.classList.toggle("hidden", button.classList.contains("cut"));
      tintAttention(canvas, page.model.pixels, scene, run.blocks[layer].attention.heads[head]);
    }
    if (step === undefined) continue;
    const probabilities = answers[step];
    const k = best({ probabilities });
    button.lastChild.textContent = classes[k];
    const off = step && !isBlockOn(step - 1) ? ", which is off" : "";
    const when = step ? `After ${blockName(step - 1)}${off}` : "After the embedding";
    button.title = `${when} the classifier would say ${classes[k]}, ${percent(probabilities[k])}`;
  }
}
