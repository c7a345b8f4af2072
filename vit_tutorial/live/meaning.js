// What a row of E, a hidden unit or a head answers to: the patches that got most from it, in pictures it was tried on.

import { bytes, drawFrame, make } from "../pages/page.js";

const SIDE = 128; // pixels of a shown picture, about

// A part's number in the list: rows of E, then each block's hidden units and heads.
const NUMBERS = {
  row: (s) => s.followed,
  unit: ({ D, M, h, layer, unit }) => D + layer * (M + h) + unit,
  head: ({ D, M, h, layer, head }) => D + layer * (M + h) + M + head,
};
const NAMES = {
  row: (s) => `Number ${s.followed} of the token`,
  unit: (s) => `Unit ${s.unit} of block ${s.layer}`,
  head: (s) => `Head ${s.head} of block ${s.layer}`,
};
const DOES = {
  row: () => "is largest for these patches",
  unit: () => "is excited most by these patches",
  head: ({ config }) => `lets the ${config.class_token ? "class token" : "tokens"} look most at these patches`,
};
const PARTS = { row: "row of E", unit: "hidden unit", head: "head" };

export function buildMeaning(page) {
  const { $$, data } = page;
  if (!data.meaning) {
    for (const element of $$("[data-meaning]")) {
      const why = "this page was made with too few pictures to try the model on";
      const textContent = `What each ${PARTS[element.dataset.meaning]} answers to isn’t shown: ${why}.`;
      element.replaceChildren(make("p", { className: "note", textContent }));
    }
    return;
  }
  const { sheet, shown, places } = data.meaning;
  page.places = new Uint16Array(bytes(places).buffer); // (parts, shown, 2): a picture, a patch
  for (const place of $$("[data-meaning] .seen")) place.append(...Array.from({ length: shown }, () => make("canvas")));
  page.sheet = make("img", { src: sheet });
  page.sheet.decode().then(page.draw, () => {});
}

function drawSeen(page, canvas, [picture, patch]) {
  const { sheet, sizes, config, data, blue } = page;
  const { W, H, columns } = sizes;
  const scale = Math.max(1, Math.round(SIDE / Math.max(W, H)));
  Object.assign(canvas, { width: W * scale, height: H * scale });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  const { across } = data.meaning;
  const [x, y] = [W * (picture % across), H * Math.floor(picture / across)];
  context.drawImage(sheet, x, y, W, H, 0, 0, canvas.width, canvas.height);
  const [P, Q] = config.patch_size;
  const box = [(patch % columns) * Q, Math.floor(patch / columns) * P, Q, P].map((side) => side * scale);
  drawFrame(context, box, blue, 3);
}

// Fills what the open station has of it.
export function drawMeaning(page, scene) {
  if (!page.sheet?.naturalWidth) return;
  const { shown, count } = page.data.meaning;
  for (const step of page.$$(`[data-station="${page.state.station}"] [data-meaning]`)) {
    const kind = step.dataset.meaning;
    const start = 2 * shown * NUMBERS[kind](scene);
    const text = `${NAMES[kind](scene)} ${DOES[kind](scene)}`;
    step.querySelector("h4").textContent = text;
    step.querySelector(".note span").textContent = `${count} pictures`;
    step.querySelectorAll("canvas").forEach((canvas, i) => {
      drawSeen(page, canvas, page.places.subarray(start + 2 * i, start + 2 * i + 2));
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${text}: ${i + 1} of ${shown}`);
    });
  }
}
