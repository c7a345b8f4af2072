// The places of the markup that numbers and sentences of a scene fill: [data-show] and [data-text].

import { cells } from "./cells.js";
import { draw } from "./page.js";
import { SHOWS, STATIONS, TEXTS } from "./stations/index.js";

// The number that is pointed at is the chosen one of its kind, "unit" or "rowOfE"; none: nothing follows it.
function choose(page, kind, number) {
  if (!kind || number === page.state[kind]) return;
  page.state[kind] = number;
  draw(page);
}

// A place's cells; the ones that they come from get a frame in the cells of the same station.
function showIn(page, place) {
  const { $, model, say } = page;
  const label = place.dataset.label ?? place.parentElement.querySelector("h4").textContent.trim();
  const view = cells({ pixels: model.pixels, say }, place, label);
  const { station } = place.closest(".station").dataset;
  $(`[data-station="${station}"]`).addEventListener("sources", ({ detail }) =>
    view.frameSources(detail[place.dataset.show]),
  );
  let token = null; // whose numbers are shown
  return (scene) => {
    const { follows, ...shown } = SHOWS[place.dataset.show](scene);
    const isOther = scene.token !== token;
    token = scene.token;
    view.show({ ...shown, pointed: (i) => choose(page, follows, i) }, isOther);
  };
}

function writeIn(place) {
  return (scene) => {
    place.textContent = TEXTS[place.dataset.text](scene);
  };
}

export function buildSlots(page) {
  const { $$, state, drawers } = page;
  const shows = $$("[data-show]").map((place) => [place, showIn(page, place)]);
  const texts = $$("[data-text]").map((place) => [place, writeIn(place)]);
  const slots = [...shows, ...texts].map(([place, fill]) => [place.closest(".station").dataset.station, fill]);
  drawers.push((scene) => {
    for (const [station, fill] of slots) if (station === state.station) fill(scene);
    STATIONS[state.station].draw?.(page, scene);
  });
}
