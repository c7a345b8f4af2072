import { digits, norm, row, rowOf } from "../cells.js";
import { whatIsOff } from "../changes.js";
import { tintAttention } from "../looks.js";

// Where the chosen token looks, in each head; nothing where a head is off.
function drawHeads(page, scene) {
  page.$$(".heads canvas").forEach((canvas, head) => {
    const isWorking = scene.isOn("") && scene.isOn("attention") && scene.isOn(`attention.heads.${head}`);
    tintAttention(canvas, page, scene, scene.block.attention.heads[head]);
    if (!isWorking) canvas.width = scene.columns; // empties it
  });
}

export const attentionStation = {
  title: "4a Attention",
  hasLayers: true,
  hasHeads: true,
  shows: {
    z: ({ block, token, D }) => row(block.input, token, D),
    norm1: ({ block, token, D }) => row(block.norm1, token, D),
    q: ({ one, token, d }) => row(one.q, token, d),
    k: ({ one, token, d }) => row(one.k, token, d),
    v: ({ one, token, d }) => row(one.v, token, d),
    sums: ({ one, token, d }) => row(one.sums, token, d),
    joined({ block, token, D, d }) {
      const name = (i) => `head ${Math.floor(i / d)}, number ${i % d}`;
      return row(block.attention.joined, token, D, { name });
    },
    attended: ({ block, token, D }) => row(block.attention.out, token, D),
    middle: ({ block, token, D }) => row(block.middle, token, D),
  },
  maps: {
    scores: ({ one, token, T }) => ({ values: rowOf(one.scores, token, T) }),
    scaled: ({ one, token, T }) => ({ values: rowOf(one.scaled, token, T) }),
    weights({ one, token, T, picture, config }) {
      return { values: rowOf(one.weights, token, T), colours: "heat", picture, shape: config.shape };
    },
  },
  texts: {
    block({ L, layer }) {
      const blocks =
        L === 1 ? "This model has one." : `This model has ${L}, one after the other: this is block\u00a0${layer}.`;
      return `Attention and MLP together are a block. ${blocks}`;
    },
    attentionOff: (s) => whatIsOff(s, "attention"),
    headOff({ head, layer, isOn }) {
      if (isOn(`attention.heads.${head}`)) return "";
      return `Head ${head} of block ${layer} is switched off: its part of the joined sums is all zeros.`;
    },
    scale({ changes, d }) {
      const scale = changes.scale ? ` ÷ √d = √${d}` : "";
      const temperature = changes.temperature === 1 ? "" : ` ÷ ${changes.temperature}`;
      return scale || temperature ? `The same${scale}${temperature}` : "The same, not divided";
    },
    divided({ changes, d }) {
      const size = `with d, which is ${d} here: how many numbers a query has`;
      if (changes.scale) return `÷ √d keeps the scores from growing ${size}.`;
      return `You don’t divide by √d, so the scores grow ${size}.`;
    },
    joinedName({ h, isOn }) {
      const off = Array.from({ length: h }, (_, head) => head).filter((head) => !isOn(`attention.heads.${head}`));
      const zeros = off.length ? ` (zeros for head ${off.join(", ")}, which ${off.length > 1 ? "are" : "is"} off)` : "";
      return `The sums of all heads, joined${zeros}`;
    },
    attentionSum: ({ isOn }) =>
      isOn("attention.residual") ? "+ z (the shortcut) = z′" : "z′, without z: the shortcut is off",
    attentionLengths({ block, token, D, isOn }) {
      const length = (x) => digits(norm(rowOf(x, token, D)));
      const [z, added, after] = [block.input, block.attention.out, block.middle].map(length);
      if (isOn("attention.residual")) return `Lengths: ‖z‖ = ${z}, what attention adds ${added}, together ${after}.`;
      return `Lengths: ‖z‖ = ${z}, and without the shortcut what attention gives is all of z′: ${after}.`;
    },
  },
  draw(page, s) {
    const { $ } = page;
    $('[data-station="attention"] .work').classList.toggle("hidden", Boolean(whatIsOff(s, "attention")));
    for (const element of page.$$(".of-head")) {
      element.classList.toggle("hidden", !s.isOn(`attention.heads.${s.head}`));
    }
    drawHeads(page, s);
  },
};
