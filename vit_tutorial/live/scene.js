// What is shown of what is chosen: the numbers that every station draws from, and the places that they fill.

import { cells, rowOf, tokenMap } from "./cells.js";
import { weightsOf } from "./compute.js";
import { largest } from "./dom.js";
import { rearrange } from "./pictures.js";
import { MAPS, SHOWS, TEXTS } from "./stations/index.js";

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
    isPartOn: (block, part) => !off.has(`blocks.${block}.${part}`),
    isHeadOn: (block, one) =>
      ["", ".attention", `.attention.heads.${one}`].every((part) => !off.has(`blocks.${block}${part}`)),
    isOn: (part) => !off.has(part ? `blocks.${layer}.${part}` : `blocks.${layer}`), // of the chosen block
  };
}

// Fills the markup's [data-show], [data-map] and [data-text]: [element, what draws it] each.
export function slotsOf(page) {
  const { $$ } = page;
  const labelOf = (place) => place.dataset.label ?? place.parentElement.querySelector("h4").textContent.trim();
  const known = (place, name, { light }) => page.views.push({ station: place.closest(".station"), name, light });
  const shows = $$("[data-show]").map((place) => {
    const view = cells(page, place, labelOf(place));
    known(place, place.dataset.show, view);
    return [place, (s) => view.show(SHOWS[place.dataset.show](s))];
  });
  const maps = $$("[data-map]").map((place) => {
    const view = tokenMap(page, place, labelOf(place));
    known(place, place.dataset.map, view);
    return [place, (s) => view.show(MAPS[place.dataset.map](s))];
  });
  const written = $$("[data-text]").filter((place) => TEXTS[place.dataset.text]);
  const texts = written.map((place) => [
    place,
    (s) => {
      place.textContent = TEXTS[place.dataset.text](s);
    },
  ]);
  return [...shows, ...maps, ...texts];
}
