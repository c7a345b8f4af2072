import { inPercent, rowOf } from "../cells.js";
import { drawHeads } from "./attention.js";

const headsOn = (scene, layer) =>
  scene.run.blocks[layer].attention.heads.filter((_, head) => scene.isHeadOn(layer, head));

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
    row: (s) => meanOf(s.isHeadOn(s.layer, s.head) ? [s.one] : [], s.token, s.T),
  },
  mean: {
    name: ({ layer }) => `Mean of the heads of block ${layer}`,
    row: (s) => meanOf(headsOn(s, s.layer), s.token, s.T),
  },
  rollout: { name: () => "Rollout, through all blocks", row: rollout },
};

export const looksStation = {
  title: "Where it looks",
  hasLayers: true,
  hasHeads: true,
  maps: {
    looks(s) {
      return { values: METHODS[s.method].row(s), colours: "heat", write: inPercent };
    },
  },
  texts: {
    looksName: (s) => METHODS[s.method].name(s),
  },
  build(page) {
    const { $$, state } = page;
    for (const input of $$('[name="method"]')) {
      input.onchange = () => {
        state.method = input.value;
        page.draw();
      };
    }
  },
  draw(page, scene) {
    page.$(".heads").classList.toggle("hidden", page.state.method !== "head");
    page.$(".layers").classList.toggle("hidden", page.state.method === "rollout");
    page.$(`[name="method"][value="${page.state.method}"]`).checked = true;
    drawHeads(page, scene);
  },
};
