import { row, rowOf } from "../cells.js";
import { productOf } from "../sources.js";

export const embeddingStation = {
  title: "2 Embedding",
  shows: {
    cut: ({ run, patch, N }) => row(run.embed.cut, patch, run.embed.cut.length / N),
    E({ weights, D, followed }) {
      const { weight } = weights.embed.patches.proj;
      return row(weight, followed, weight.length / D, { texts: weight.length / D <= 16 });
    },
    projected({ run, weights, patch, N, D, follow }) {
      const columns = weights.embed.patches.proj.weight.length / D;
      const product = productOf("x", rowOf(run.embed.cut, patch, run.embed.cut.length / N), weights.embed.patches.proj);
      const sources = (i) => ({ ...product(i), lights: { E: [0, columns - 1] } });
      return row(run.embed.projected, patch, D, { pointed: follow, sources });
    },
  },
  texts: {
    rowName: ({ D, followed }) => `× row ${followed} of E, one of the ${D} that were learned`,
    dim: ({ D }) => `D = ${D}`,
    stem({ config, run }) {
      if (!config.stem) return "";
      const maps = run.embed.maps.map(({ shape: [F, h, w] }) => `${F} × ${h} × ${w}`);
      return (
        `This model looks at the picture with ${maps.length} convolutions before it cuts it (lesson 12 of the ` +
        `series). Their maps, channels × rows × columns: ${maps.join(", then ")}. So neighbouring tokens share pixels.`
      );
    },
  },
};
