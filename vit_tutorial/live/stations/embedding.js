import { row, rowOf } from "../cells.js";
import { productOf } from "../sources.js";

// How a token's numbers differ from those of the token that was chosen before; first: the token of row 0.
export function besides({ token, previous, D, theName }, rows, first = 0) {
  if (previous === null || previous === token || Math.min(token, previous) < first) return "";
  const [mine, other] = [token, previous].map((t) => rowOf(rows, t - first, D));
  const differing = mine.filter((v, i) => v !== other[i]).length;
  if (!differing) return `: all the same as those of ${theName(previous)}`;
  return `; ${differing === mine.length ? "all" : differing} differ from those of ${theName(previous)}`;
}

export const embeddingStation = {
  title: "2 Embedding",
  shows: {
    E({ weights, D, rowOfE }) {
      const { weight } = weights.embed.patches.proj;
      return row(weight, rowOfE, weight.length / D, { texts: weight.length / D <= 16 });
    },
    projected(s) {
      const { run, weights, patch, D, rowOfE, prefix } = s;
      const columns = weights.embed.patches.proj.weight.length / D;
      const product = productOf("x", rowOf(run.embed.patches, patch, columns), weights.embed.patches.proj);
      const sources = (i) => ({ ...product(i), sourceCells: { E: [0, columns - 1] } });
      const more = besides(s, run.embed.projected, prefix);
      return row(run.embed.projected, patch, D, { follows: "rowOfE", chosen: rowOfE, sources, more });
    },
  },
  texts: {
    special: ({ token, tokenName }) => tokenName(token),
    rowName: ({ D, rowOfE }) => `× column ${rowOfE} of E, one of the ${D} that were learned`,
    dim: ({ D }) => `D = ${D}`,
  },
};
