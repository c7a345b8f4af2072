import { largest } from "../../pages/page.js";
import { rowOf } from "../cells.js";
import { tint } from "../looks.js";
import { drawHeads } from "./attention.js";

const GAP = 1; // pixels between the small maps
const ROOM = [340, 420]; // that they have, across and down

const isHeadOn = ({ isBlockOn, isPartOn }, layer, head) =>
  isBlockOn(layer) && isPartOn(layer, "attention") && isPartOn(layer, `attention.heads.${head}`);

const headsOn = (scene, layer) =>
  scene.run.blocks[layer].attention.heads.filter((_, head) => isHeadOn(scene, layer, head));

// Where a token looks on average over heads: (T,); all zeros without any.
function meanOf(heads, token, T) {
  const mean = new Float64Array(T);
  for (const { weights } of heads) rowOf(weights, token, T).forEach((weight, t) => (mean[t] += weight / heads.length));
  return mean;
}

// The token's row of A_L ... A_2 A_1, A = 0.5 W + 0.5 I, where W is the mean of a block's heads (lesson 08): (T,).
// A block whose attention is off passes tokens on as they are; one without the shortcut, by W alone.
function rollout(scene) {
  const { run, token, T, isPartOn } = scene;
  let row = Float64Array.from({ length: T }, (_, t) => Number(t === token));
  for (let layer = run.blocks.length - 1; layer >= 0; layer--) {
    const heads = headsOn(scene, layer);
    if (!heads.length) continue;
    const kept = isPartOn(layer, "attention.residual") ? 0.5 : 0;
    const next = row.map((share) => kept * share);
    row.forEach((share, from) => {
      meanOf(heads, from, T).forEach((weight, t) => (next[t] += (1 - kept) * share * weight));
    });
    row = next;
  }
  return row; // (T,)
}

export const METHODS = {
  head: {
    name: ({ layer, head }) => `Head ${head} of block ${layer}`,
    row: (s) => meanOf(isHeadOn(s, s.layer, s.head) ? [s.one] : [], s.token, s.T),
  },
  mean: {
    name: ({ layer }) => `Mean of the heads of block ${layer}`,
    row: (s) => meanOf(headsOn(s, s.layer), s.token, s.T),
  },
  rollout: { name: () => "Rollout, through all blocks", row: rollout },
};

// Every block and head for the chosen token, a pixel for each patch, each map from 0 to its own largest.
function drawAll({ $, pixels, sizes }, scene) {
  const { L, h, T, rows, columns, prefix } = sizes;
  const [across, down] = [h * (columns + GAP) - GAP, L * (rows + GAP) - GAP];
  const shares = new Float64Array(across * down).fill(-1); // nothing is there
  for (let layer = 0; layer < L; layer++) {
    for (let head = 0; head < h; head++) {
      if (!isHeadOn(scene, layer, head)) continue;
      const { weights: all } = scene.run.blocks[layer].attention.heads[head];
      const weights = rowOf(all, scene.token, T).subarray(prefix);
      const most = largest(weights);
      weights.forEach((weight, n) => {
        const [row, column] = [Math.floor(n / columns), n % columns];
        shares[(layer * (rows + GAP) + row) * across + head * (columns + GAP) + column] = weight / most;
      });
    }
  }
  const colours = Uint32Array.of(0, ...pixels.heat);
  tint($(".all-maps canvas"), shares, across, colours, (share) => (share < 0 ? 0 : share + 1 / 255));
}

export const looksStation = {
  title: "Where it looks",
  hasLayers: true,
  hasHeads: true,
  maps: {
    looks(s) {
      const values = METHODS[s.method].row(s);
      return { values, colours: "heat", picture: s.picture, shape: s.config.shape };
    },
  },
  texts: {
    looksName: (s) => METHODS[s.method].name(s),
  },
  build(page) {
    const { $, $$, state, sizes } = page;
    const canvas = $(".all-maps canvas");
    const [across, down] = [sizes.h * (sizes.columns + GAP) - GAP, sizes.L * (sizes.rows + GAP) - GAP];
    const scale = Math.max(1, Math.floor(Math.min(ROOM[0] / across, ROOM[1] / down))); // whole pixels
    canvas.style.width = `${scale * across}px`;
    canvas.onclick = ({ offsetX, offsetY }) => {
      const layer = Math.min(sizes.L - 1, Math.floor((offsetY / canvas.clientHeight) * sizes.L));
      const head = Math.min(sizes.h - 1, Math.floor((offsetX / canvas.clientWidth) * sizes.h));
      Object.assign(state, { layer, head, method: "head" });
      page.draw();
    };
    for (const input of $$('[name="method"]')) {
      input.onchange = () => {
        state.method = input.value;
        page.draw();
      };
    }
  },
  draw(page, scene) {
    const { $, state } = page;
    $(`[name="method"][value="${state.method}"]`).checked = true;
    drawHeads(page, scene);
    drawAll(page, scene);
    const { layer, head, L, h } = scene;
    const frame = {
      head: [layer / L, head / h, 1 / L, 1 / h],
      mean: [layer / L, 0, 1 / L, 1],
      rollout: [0, 0, 1, 1],
    }[state.method];
    ["top", "left", "height", "width"].forEach((side, i) => ($(".all-maps .mark").style[side] = `${100 * frame[i]}%`));
  },
};
