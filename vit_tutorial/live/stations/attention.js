import { largest } from "../../pages/page.js";
import { digits, norm, row, rowOf } from "../cells.js";
import { whatIsOff } from "../changes.js";

// Where the chosen token looks, in each head; nothing where a head is off.
function drawHeads({ $$, pixels }, { block, token, T, prefix, rows, columns, isOn }) {
  $$(".heads canvas").forEach((canvas, head) => {
    Object.assign(canvas, { width: columns, height: rows });
    if (!isOn("") || !isOn("attention") || !isOn(`attention.heads.${head}`)) return;
    const shares = rowOf(block.attention.heads[head].weights, token, T).subarray(prefix);
    const most = largest(shares);
    const image = new ImageData(columns, rows);
    new Uint32Array(image.data.buffer).set(
      Array.from(shares, (share) => pixels.heat[Math.round((255 * share) / most)]),
    );
    canvas.getContext("2d").putImageData(image, 0, 0);
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
      const blocks = `This model has ${L}, one after the other; you are in block ${layer}.`;
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
    divided: ({ d }) => `÷ √d keeps the scores from growing with d, which is ${d} here: how many numbers a query has.`,
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
