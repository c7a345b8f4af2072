// The stations, in the order of their tabs. Each has a title, and may have:
//   hasLayers, hasHeads: the block, or the head, is chosen
//   shows, texts: what [data-show], [data-text] of the markup show, of a scene (see scene.js)
//   draw(page, scene): what else it shows

import { attentionStation } from "./attention.js";
import { embeddingStation } from "./embedding.js";
import { headStation } from "./head.js";
import { layersStation } from "./layers.js";
import { mlpStation } from "./mlp.js";
import { patchesStation } from "./patches.js";
import { positionsStation } from "./positions.js";
import { whatIfStation } from "./what_if.js";

export const STATIONS = {
  patches: patchesStation,
  embedding: embeddingStation,
  positions: positionsStation,
  attention: attentionStation,
  mlp: mlpStation,
  head: headStation,
  layers: layersStation,
  "what-if": whatIfStation,
};

const ofAll = (kind) => Object.assign({}, ...Object.values(STATIONS).map((station) => station[kind]));
export const SHOWS = ofAll("shows");
export const TEXTS = ofAll("texts");
