// What is shown of what is chosen: the numbers that every station draws from, and the places that they fill.

import { cells, rowOf } from "./cells.js";
import { weightsOf } from "./compute.js";
import { largest } from "./dom.js";
import { rearrange } from "./pictures.js";
import { SHOWS, TEXTS } from "./stations/index.js";

// The hidden unit that a token excites most.
function mostActive({ mlp }, token, M) {
  const units = rowOf(mlp.before, token, M);
  return units.indexOf(largest(units));
}

// What the stations show: a pass, and what of it is chosen.
export function sceneOf(page) {
  const { data, config, classes, sizes, state } = page;
  const { now, of } = page.shown;
  const weights = weightsOf(page, of.changes);
  const { token, layer, head } = state;
  const off = new Set(of.changes.off);
  const colours = ["red", "green", "blue"];
  return {
    ...sizes,
    run: now,
    block: now.blocks[layer],
    one: now.blocks[layer].attention.heads[head],
    own: weights.blocks[layer], // the chosen block's weights
    changes: of.changes,
    picture: rearrange(of.picture, data, of.changes),
    data,
    config,
    classes,
    weights,
    token,
    layer,
    head,
    patch: Math.max(token - sizes.prefix, 0),
    followed: state.row,
    isFine: state.isFine,
    previous: state.previous, // the token that was chosen before
    unit: state.unit ?? mostActive(now.blocks[layer], token, sizes.M),
    followUnit(unit) {
      if (unit === state.unit) return;
      state.unit = unit;
      page.draw();
    },
    follow(row) {
      if (row === state.row) return;
      state.row = row;
      page.draw();
    },
    tokenName: page.tokenName,
    theName: page.theName,
    channel: (c) => (sizes.C === 1 ? "" : `${sizes.C === 3 ? colours[c] : `channel ${c}`}, `),
    isBlockOn: (block) => !off.has(`blocks.${block}`),
    isHeadOn: (block, one) =>
      ["", ".attention", `.attention.heads.${one}`].every((part) => !off.has(`blocks.${block}${part}`)),
    isOn: (part) => !off.has(part ? `blocks.${layer}.${part}` : `blocks.${layer}`), // of the chosen block
  };
}

// Fills the markup's [data-show] and [data-text]: [element, what draws it] each.
export function slotsOf(page) {
  const { $$ } = page;
  const labelOf = (place) => place.dataset.label ?? place.parentElement.querySelector("h4").textContent.trim();
  const shows = $$("[data-show]").map((place) => {
    const view = cells(page, place, labelOf(place));
    page.views.push({ station: place.closest(".station"), name: place.dataset.show, light: view.light });
    return [place, (s) => view.show(SHOWS[place.dataset.show](s))];
  });
  const written = $$("[data-text]").filter((place) => TEXTS[place.dataset.text]);
  const texts = written.map((place) => [
    place,
    (s) => {
      place.textContent = TEXTS[place.dataset.text](s);
    },
  ]);
  return [...shows, ...texts];
}
