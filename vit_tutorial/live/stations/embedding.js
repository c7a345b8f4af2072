import { row, rowOf } from "../cells.js";
import { productOf } from "../sources.js";

export const embeddingStation = {
  title: "2 Embedding",
  shows: {
    E({ weights, D, followed }) {
      const { weight } = weights.embed.patches.proj;
      return row(weight, followed, weight.length / D, { texts: weight.length / D <= 16 });
    },
    projected({ run, weights, patch, D, followed, follow }) {
      const columns = weights.embed.patches.proj.weight.length / D;
      const product = productOf("x", rowOf(run.embed.patches, patch, columns), weights.embed.patches.proj);
      const sources = (i) => ({ ...product(i), lights: { E: [0, columns - 1] } });
      return row(run.embed.projected, patch, D, { pointed: follow, chosen: followed, sources });
    },
  },
  texts: {
    special: ({ token, tokenName }) => tokenName(token),
    rowName: ({ D, followed }) => `× row ${followed} of E, one of the ${D} that were learned`,
    dim: ({ D }) => `D = ${D}`,
  },
};
