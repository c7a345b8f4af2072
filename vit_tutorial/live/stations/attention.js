import { row, rowOf } from "../cells.js";
import { blockName, headName, whatIsOff } from "../changes.js";
import { normOf, productOf, sumOf, weightedSum } from "../sources.js";
import { tintAttention } from "../thumbnails.js";

// Where the chosen token looks, in each head; nothing where a head is off.
function drawHeads(page, scene) {
  page.$$(".heads canvas").forEach((canvas, head) => {
    tintAttention(canvas, page.model.pixels, scene, scene.block.attention.heads[head]);
    if (!scene.isHeadOn(scene.layer, head)) canvas.width = scene.columns; // empties it
  });
}

function partOfQkv({ block, one, token, D, d, head, own }, name, part) {
  const from = rowOf(block.norm1, token, D);
  return row(one[name], token, d, { sources: productOf("norm1", from, own.attention.qkv, part * D + head * d) });
}

export const attentionStation = {
  title: "4a Attention",
  hasLayers: true,
  hasHeads: true,
  shows: {
    z: ({ block, token, D, most }) => row(block.input, token, D, { most }),
    norm1({ block, token, D, own, config }) {
      return row(block.norm1, token, D, {
        sources: normOf("z", rowOf(block.input, token, D), own.norm1, config.norm_eps),
      });
    },
    q: (s) => partOfQkv(s, "q", 0),
    k: (s) => partOfQkv(s, "k", 1),
    v: (s) => partOfQkv(s, "v", 2),
    sums({ one, token, T, d, tokenName }) {
      return row(one.sums, token, d, { sources: weightedSum(rowOf(one.weights, token, T), one.v, d, tokenName) });
    },
    joined({ block, token, D, d, h, head }) {
      const labels = Array.from({ length: h }, (_, one) => headName(one));
      const name = (i) => `${headName(Math.floor(i / d))}, number ${i % d}`;
      const sources = (i) => ({ sourceCells: Math.floor(i / d) === head ? { sums: [i % d, i % d] } : {} });
      return row(block.attention.joined, token, D, { name, sources, labels });
    },
    attended({ block, token, D, own, most }) {
      const sources = productOf("joined", rowOf(block.attention.joined, token, D), own.attention.proj);
      return row(block.attention.out, token, D, { most, sources });
    },
    middle({ block, token, D, isOn, most }) {
      const added = ["attended", "attention", rowOf(block.attention.out, token, D)];
      const parts = isOn("attention.residual") ? [["z", "z", rowOf(block.input, token, D)], added] : [added];
      return row(block.middle, token, D, { most, sources: sumOf(...parts) });
    },
  },
  texts: {
    takesName: ({ head }) => `What ${headName(head)} takes`,
    block({ L, layer }) {
      const blocks =
        L === 1 ? "This model has one." : `This model has ${L}, one after the other: this is ${blockName(layer)}.`;
      return `Attention and MLP together are a block. ${blocks}`;
    },
    attentionOff: (s) => whatIsOff(s, "attention"),
    headOff({ head, layer, isOn }) {
      if (isOn(`attention.heads.${head}`)) return "";
      return `In ${blockName(layer)}, ${headName(head)} is switched off: its part of the joined sums is all zeros.`;
    },
    divided({ changes, d }) {
      const size = `with d, which is ${d} here: how many numbers a query has`;
      if (changes.scale) return `÷ √d keeps the scores from growing ${size}.`;
      return `You don’t divide by √d, so the scores grow ${size}.`;
    },
    joinedName: ({ h, d, D }) => `What all heads take, joined: ${h} × ${d} = ${D} numbers`,
    attentionSum: ({ isOn }) =>
      isOn("attention.residual") ? "= z′, the sum of both" : "z′, without z: the shortcut is off",
  },
  draw(page, s) {
    const { $ } = page;
    $('[data-station="attention"] .computation').classList.toggle("hidden", Boolean(whatIsOff(s, "attention")));
    for (const element of page.$$(".head-vectors")) {
      element.classList.toggle("hidden", !s.isOn(`attention.heads.${s.head}`));
    }
    drawHeads(page, s);
  },
};
