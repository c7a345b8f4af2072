// The whole model in one line, in sight where the diagram isn't: which part is open, and what is off. A click opens a
// part; keys and screen readers have the diagram itself.

import { make } from "../pages/page.js";
import { isOff } from "./map.js";

const cell = (to, text, layer, part) => ({ to, text, layer, part });

function cellsOf({ L }) {
  const blocks = Array.from({ length: L }, (_, layer) => [
    cell("attention", String(layer), layer, `blocks.${layer}.attention`),
    cell("mlp", "", layer, `blocks.${layer}.mlp`),
  ]);
  const words = { patches: "patches", embedding: "E", positions: "tokens" };
  const before = Object.entries(words).map(([to, text]) => cell(to, text));
  return [...before, ...blocks.flat(), cell("head", "answer"), cell("what-if", "?")];
}

export function buildStrip(page) {
  const { $, sizes } = page;
  page.strip = cellsOf(sizes).map((one) => {
    const { text: textContent, to, layer } = one;
    const element = make("span", { textContent, className: layer === undefined ? "word" : to });
    element.onclick = () => {
      page.walk(to, { layer });
      $(".station:not(.hidden) h3").scrollIntoView({ block: "start" });
    };
    return { ...one, element };
  });
  $(".strip").append(...page.strip.map(({ element }) => element));
}

export function drawStrip({ state, strip }) {
  const at = { layers: "head", looks: "attention" }[state.station] ?? state.station;
  for (const { element, to, layer, part } of strip) {
    element.classList.toggle("here", to === at && (layer ?? state.layer) === state.layer);
    element.classList.toggle("cut", Boolean(part) && isOff(state.changes.off, part));
  }
}
