// The small pictures on the map: what goes in, the followed patch, the tokens, where each head looks, what is answered.

import { largest, make, sharpen } from "../pages/page.js";
import { best } from "./answer.js";
import { largestSize, percent, rowOf } from "./cells.js";
import { lens } from "./model.js";
import { drawPatches } from "./picker.js";
import { paint, tint } from "./pictures.js";

const MOST_BARS = 3; // classes of the answer

// Where the chosen token looks.
export function tintAttention(canvas, { pixels }, { token, T, prefix, columns }, { weights }) {
  const shares = rowOf(weights, token, T).subarray(prefix);
  const most = largest(shares);
  tint(canvas, shares, columns, pixels.heat, (share) => share / most);
}

const LOOKS = {
  picture(canvas, { config }, { picture }) {
    paint(canvas, picture, config.shape);
  },
  patches(canvas, page) {
    if (sharpen(canvas)) drawPatches(page, canvas);
  },
  tokens(canvas, { pixels }, { run, D }) {
    const { tokens } = run.embed;
    const most = 0.5 * largestSize(tokens);
    tint(canvas, tokens, D, pixels.signed, (v) => Math.min(1, Math.max(0, 0.5 + (0.5 * v) / most)));
  },
};

function drawAnswerBars(button, { classes }, { run }) {
  const order = [...run.probabilities.keys()].sort((a, b) => run.probabilities[b] - run.probabilities[a]);
  const bars = order.slice(0, MOST_BARS).map((k) => {
    const bar = make("span", { className: "bar", textContent: classes[k], title: classes[k] });
    bar.style.setProperty("--share", `${100 * run.probabilities[k]}%`);
    return bar;
  });
  button.replaceChildren(...bars);
}

export function drawLooks(page, scene) {
  const { weights, config, classes, of } = page;
  const { run, isBlockOn } = scene;
  const answers = lens(run, weights, config, of.changes.answer);
  for (const { button, look, head, layer, step } of page.mapParts) {
    const canvas = button.querySelector("canvas");
    if (look === "answer") drawAnswerBars(button, page, scene);
    else if (look) LOOKS[look](canvas, page, scene);
    if (head !== undefined) {
      canvas.classList.toggle("hidden", button.classList.contains("cut"));
      tintAttention(canvas, page, scene, run.blocks[layer].attention.heads[head]);
    }
    if (step === undefined) continue;
    const probabilities = answers[step];
    const k = best({ probabilities });
    button.lastChild.textContent = classes[k];
    const off = step && !isBlockOn(step - 1) ? ", which is off" : "";
    const when = step ? `After block ${step - 1}${off}` : "After the embedding";
    button.title = `${when} the classifier would say ${classes[k]}, ${percent(probabilities[k])}`;
  }
}
