import { digits, largestSize, row, rowOf } from "../cells.js";
import { whatIsOff } from "../changes.js";
import { normOf, productOf, sumOf } from "../sources.js";

const units = (values, token, M, more) => row(values, token, M, { name: (i) => `unit ${i}`, ...more });

export const mlpStation = {
  title: "4b MLP",
  hasLayers: true,
  shows: {
    norm2({ block, token, D, own, config }) {
      return row(block.norm2, token, D, {
        sources: normOf("middle", rowOf(block.middle, token, D), own.norm2, config.norm_eps),
      });
    },
    before({ block, token, D, M, own, unit }) {
      const sources = productOf("norm2", rowOf(block.norm2, token, D), own.mlp.fc1);
      return units(block.mlp.before, token, M, { follows: "unit", chosen: unit, sources });
    },
    hidden({ block, token, M, unit }) {
      const before = rowOf(block.mlp.before, token, M);
      const sources = (i) => ({ text: `GELU(${digits(before[i])})`, sourceCells: { before: [i, i] } });
      return units(block.mlp.hidden, token, M, { follows: "unit", chosen: unit, sources });
    },
    list({ D, M, own, unit }) {
      const values = Float32Array.from({ length: D }, (_, i) => own.mlp.fc2.weight[i * M + unit]);
      return { values, columns: D, most: largestSize(own.mlp.fc2.weight) };
    },
    mlp({ block, token, D, M, own, most }) {
      const sources = productOf("hidden", rowOf(block.mlp.hidden, token, M), own.mlp.fc2);
      return row(block.mlp.out, token, D, { most, sources });
    },
    out({ block, token, D, isOn, most }) {
      const added = ["mlp", "MLP", rowOf(block.mlp.out, token, D)];
      const parts = isOn("mlp.residual") ? [["middle", "z′", rowOf(block.middle, token, D)], added] : [added];
      return row(block.out, token, D, { most, sources: sumOf(...parts) });
    },
  },
  texts: {
    mlpOff: (s) => whatIsOff(s, "mlp"),
    mlpDim: ({ M }) => `M = ${M}`,
    hiddenName({ block, token, M, theName }) {
      const on = rowOf(block.mlp.before, token, M).filter((v) => v > 0).length;
      return `${M} hidden units, for ${theName(token)}: ${on} on (above 0), the others close to 0`;
    },
    listName({ block, token, M, unit }) {
      const value = rowOf(block.mlp.hidden, token, M)[unit];
      return `The list of unit ${unit}, learned: times ${digits(value)}, it is added to the token`;
    },
    mlpName: ({ M }) => `+ what the MLP adds: the lists of all ${M} units, each times its number, and a bias`,
    mlpSum: ({ isOn }) =>
      isOn("mlp.residual") ? "= z, out of the block: z′ plus that" : "z, without z′: the shortcut is off",
  },
  draw({ $ }, s) {
    $('[data-station="mlp"] .computation').classList.toggle("hidden", Boolean(whatIsOff(s, "mlp")));
  },
};
