import { FEW } from "../answer.js";
import { inPercent, row, rowOf } from "../cells.js";
import { normOf, productOf, softmaxOf } from "../sources.js";

// What the classifier reads.
export const readBy = ({ pool }) => (pool === "cls" ? "the class token only" : "the mean of all patches");

const perClass = (values, { classes }, more) => ({
  values,
  columns: values.length,
  name: (i) => classes[i],
  texts: true,
  labels: classes.length <= FEW ? classes : [],
  ...more,
});

export const headStation = {
  title: "5 Classifier",
  shows: {
    last: ({ run, token, D }) => row(run.blocks.at(-1).out, token, D),
    norm({ run, token, D, weights, config }) {
      const last = rowOf(run.blocks.at(-1).out, token, D);
      return row(run.norm, token, D, { sources: normOf("last", last, weights.norm, config.norm_eps) });
    },
    pooled({ run, config, token, N }) {
      const isOfToken = config.pool === "cls" && token === 0;
      const text = config.pool === "mean" ? `the mean of ${N} numbers` : "";
      const sources = (i) => ({ text, sourceCells: isOfToken ? { norm: [i, i] } : {} });
      return { values: run.pooled, columns: run.pooled.length, sources };
    },
    logits(s) {
      return perClass(s.run.logits, s, { sources: productOf("pooled", s.run.pooled, s.weights.head) });
    },
    probabilities(s) {
      const sources = softmaxOf("logits", s.run.logits, s.isFine);
      return perClass(s.run.probabilities, s, {
        colours: "heat",
        most: 1,
        percentages: true,
        sources,
        write: inPercent,
      });
    },
  },
  texts: {
    pooling({ config }) {
      const others = config.pool === "cls" ? ": patches count by what it took from them" : "";
      return `The classifier reads ${readBy(config)}${others}.`;
    },
    read: ({ config }) => readBy(config),
    unread({ token, tokenName, config, prefix }) {
      if (config.pool !== "cls" || token < prefix) return "";
      const advice = "choose the class token to see what it reads";
      return `You follow ${tokenName(token)}, which the classifier doesn’t read: ${advice}.`;
    },
  },
  draw({ $ }, { config }) {
    $(".class-token-formula").classList.toggle("hidden", config.pool !== "cls");
  },
};
