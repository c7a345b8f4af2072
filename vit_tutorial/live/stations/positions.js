import { largestSize, row, rowOf } from "../cells.js";
import { sumOf } from "../sources.js";
import { besides } from "./embedding.js";
import { readBy } from "./head.js";

// One scale for what is added, and for the sum.
const mostOf = ({ run: { embed }, token, D }) =>
  largestSize(...[embed.content, embed.position, embed.tokens].map((rows) => rowOf(rows, token, D)));

export const positionsStation = {
  title: "3 Positions",
  shows: {
    content: (s) => row(s.run.embed.content, s.token, s.D, { most: mostOf(s) }),
    position: (s) => row(s.run.embed.position, s.token, s.D, { most: mostOf(s) }),
    z0(s) {
      const { run, token, D, prefix } = s;
      const { content, position, tokens } = run.embed;
      const parts = [
        ["content", "token", rowOf(content, token, D)],
        ["position", "position", rowOf(position, token, D)],
      ];
      return row(tokens, token, D, { most: mostOf(s), sources: sumOf(...parts), more: besides(s, tokens, prefix) });
    },
  },
  texts: {
    positionLead({ config, changes }) {
      const lost = "A token doesn’t tell where its patch was.";
      if (config.position === "none") return `${lost} This model adds nothing that does: to it, patches are a bag.`;
      if (changes.position === "none") return `${lost} You took the positions away, so nothing is added that does.`;
      const kind = config.position === "sincos" ? "list of sines and cosines" : "learned list";
      if (changes.position === "learned") return `${lost} So a ${kind} for each place is added.`;
      return `${lost} A ${kind} for each place is added, and you reversed them: the first patch gets the last one’s.`;
    },
    classToken({ config }) {
      if (!config.prefix) return `This model has no class token: in the end it reads ${readBy(config)}.`;
      return "One more token, the class token, comes first. It belongs to no patch and will collect the answer.";
    },
    contentName: ({ token, tokenName, prefix }) =>
      token < prefix ? `The ${tokenName(token)}, learned` : "x E + bias, the token",
    positionName({ changes, token, prefix }) {
      if (token < prefix) return "its own list, as it has no place";
      return `the list of ${changes.position === "reversed" ? "the place opposite" : "its place"}`;
    },
  },
  draw({ $$ }, { config, changes }) {
    const isNone = config.position === "none" || changes.position === "none";
    for (const element of $$(".position-step")) element.classList.toggle("hidden", isNone);
  },
};
