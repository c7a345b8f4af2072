// What is chosen of the model: a station, a block, a head.

import { make, radios } from "./dom.js";
import { draw } from "./page.js";
import { STATIONS } from "./stations/index.js";
import { explainWords } from "./words.js";

// Opens a station, at a block and a head if they are given.
export function go(page, name, { layer, head } = {}) {
  const { $, $$, state } = page;
  if (name !== state.station) state.isCutting = name === "what-if";
  state.station = name;
  if (layer !== undefined) state.layer = layer;
  if (head !== undefined) state.head = head;
  const { title, hasLayers, hasHeads } = STATIONS[name];
  $(".panel").setAttribute("aria-label", title);
  for (const part of $$(".station")) part.classList.toggle("hidden", part.dataset.station !== name);
  $(".layers").classList.toggle("hidden", !hasLayers);
  $(".heads").classList.toggle("hidden", !hasHeads);
  draw(page);
  explainWords(page);
}

// The choice of a block, and of a head, each with a small map of where the token looks.
export function buildDepth(page) {
  const { $, state, drawers, model } = page;
  const { sizes } = model;
  const blocks = Array.from({ length: sizes.L }, (_, i) => make("span", { className: "choice", textContent: i + 1 }));
  const heads = Array.from({ length: sizes.h }, (_, i) => {
    const map = make("canvas");
    map.style.aspectRatio = `${sizes.columns} / ${sizes.rows}`;
    return make("span", { className: "choice" }, map, String(i + 1));
  });
  const choices = [
    { name: "layer", title: "Block", contents: blocks },
    { name: "head", title: "Head", contents: heads },
  ];
  for (const { name, title, contents } of choices) {
    $(`.${name}s`).append(make("span", { className: "row-name", textContent: title }));
    radios($(`.${name}s`), name, contents, (i) => {
      state[name] = i;
      draw(page);
    });
  }
  drawers.push((scene) => drawDepth(page, scene));
}

// Which of them are chosen, which are off, and whether every step is shown.
function drawDepth({ $, $$, state }, { layer, head, isBlockOn, isHeadOn }) {
  $(".panel").classList.toggle("without-math", !state.isFine);
  for (const button of $$('[data-do="fine"]')) {
    button.textContent = state.isFine ? "Hide the mathematics" : "Show the mathematics";
  }
  $$('[name="layer"]').forEach((input, i) => {
    input.checked = i === layer;
    input.parentElement.classList.toggle("cut", !isBlockOn(i));
  });
  $$('[name="head"]').forEach((input, i) => {
    input.checked = i === head;
    input.parentElement.classList.toggle("cut", !isHeadOn(layer, i));
  });
}
