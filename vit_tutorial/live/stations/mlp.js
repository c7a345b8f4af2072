import { norm, row, rowOf } from "../cells.js";
import { whatIsOff } from "../changes.js";

const units = (values, token, M, pointed) => row(values, token, M, { name: (i) => `unit ${i}`, pointed });

export const mlpStation = {
  title: "4b MLP",
  hasLayers: true,
  shows: {
    norm2: ({ block, token, D }) => row(block.norm2, token, D),
    before: ({ block, token, M, followUnit }) => units(block.mlp.before, token, M, followUnit),
    hidden: ({ block, token, M, followUnit }) => units(block.mlp.hidden, token, M, followUnit),
    mlp: ({ block, token, D }) => row(block.mlp.out, token, D),
    out: ({ block, token, D }) => row(block.out, token, D),
    lengths({ run, token, D, isBlockOn, isPartOn }) {
      const after = run.blocks.flatMap(({ input, middle, out }, layer) =>
        isBlockOn(layer) ? [middle, out] : [input, input],
      );
      const values = Float32Array.from([run.embed.tokens, ...after], (z) => norm(rowOf(z, token, D)));
      const name = (i) => {
        if (!i) return "after the embedding";
        const layer = Math.floor((i - 1) / 2);
        if (!isBlockOn(layer)) return `block ${layer}, which is off`;
        const part = i % 2 ? "attention" : "mlp";
        const after = i % 2 ? "after attention" : "after its MLP";
        return `block ${layer}, ${after}${isPartOn(layer, part) ? "" : ", which is off"}`;
      };
      return { values, columns: values.length, colours: "heat", name, texts: true };
    },
  },
  texts: {
    mlpOff: (s) => whatIsOff(s, "mlp"),
    mlpDim: ({ M }) => `M = ${M}`,
    count: ({ D }) => String(D),
    active({ block, token, M }) {
      const on = rowOf(block.mlp.before, token, M).filter((v) => v > 0).length;
      return `${on} of ${M} on`;
    },
    mlpSum: ({ isOn }) =>
      isOn("mlp.residual") ? "+ z′ (the shortcut) = z, out of the block" : "z, without z′: the shortcut is off",
  },
  draw({ $ }, s) {
    $('[data-station="mlp"] .work').classList.toggle("hidden", Boolean(whatIsOff(s, "mlp")));
  },
};
