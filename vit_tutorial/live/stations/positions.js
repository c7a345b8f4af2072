import { norm, row, rowOf } from "../cells.js";

const cosine = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0) / (norm(a) * norm(b) || 1);

export const positionsStation = {
  title: "3 Positions",
  shows: {
    content: ({ run, token, D }) => row(run.embed.content, token, D),
    position: ({ run, token, D }) => row(run.embed.position, token, D),
    z0: ({ run, token, D }) => row(run.embed.tokens, token, D),
    all({ run, D, tokenName }) {
      const name = (i) => `${tokenName(Math.floor(i / D))}, number ${i % D}`;
      return { values: run.embed.tokens, columns: D, name };
    },
  },
  maps: {
    likeness({ run, token, D, T }) {
      const { position } = run.embed;
      const mine = rowOf(position, token, D);
      return { values: Float32Array.from({ length: T }, (_, t) => cosine(mine, rowOf(position, t, D))), most: 1 };
    },
  },
  texts: {
    classToken({ prefix }) {
      if (!prefix) return "This model has no class token: in the end it takes the mean of all patches.";
      return "One more token, the class token, comes first. It belongs to no patch, and will collect the answer.";
    },
    contentName({ token, prefix, config }) {
      if (token < prefix) return "The class token, learned";
      return config.stem ? "The token of the patch" : "x E, the token of the patch";
    },
  },
};
