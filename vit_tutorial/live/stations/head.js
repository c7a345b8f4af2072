import { FEW } from "../answer.js";
import { row, rowOf, inPercent } from "../cells.js";
import { normOf, productOf, softmaxOf } from "../sources.js";

export const readsClassToken = ({ class_token, pool }) => class_token && !["mean", "attention"].includes(pool);

// What the classifier reads.
export function readBy({ pool, pool_prefix }) {
  const all = pool_prefix ? "all tokens" : "all patches";
  return {
    cls: "the class token only",
    mean: `the mean of ${all}`,
    distilled: "the class token and the distillation token, end to end",
    "cls+mean": `the class token and the mean of ${all}, end to end`,
    attention: `what a learned query takes from ${all}`,
  }[pool];
}

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
      if (!weights.norm) return row(run.norm, token, D);
      const last = rowOf(run.blocks.at(-1).out, token, D);
      return row(run.norm, token, D, { sources: normOf("last", last, weights.norm, config.norm_eps) });
    },
    pooled({ run, config, weights, token, N, T }) {
      const isOfToken = config.pool === "cls" && token === 0 && !weights.pool_norm;
      const text =
        config.pool === "mean" && !weights.pool_norm ? `the mean of ${config.pool_prefix ? T : N} numbers` : "";
      const sources = (i) => ({ text, lights: isOfToken ? { norm: [i, i] } : {} });
      return { values: run.pooled, columns: run.pooled.length, sources };
    },
    logits(s) {
      const product = productOf("pooled", s.run.pooled, s.weights.head);
      const text = `the cosine of both, times ${s.config.likeness}`;
      const sources = s.config.likeness ? (i) => ({ text, lights: product(i).lights }) : product;
      return perClass(s.run.logits, s, { sources });
    },
    probabilities(s) {
      const sources = softmaxOf("logits", s.run.logits, s.isFine, s.changes.answer);
      return perClass(s.run.probabilities, s, { colours: "heat", most: 1, shares: true, sources, write: inPercent });
    },
  },
  texts: {
    pooling({ config }) {
      const others = config.pool === "cls" ? ": patches count by what it took from them" : "";
      return `The classifier reads ${readBy(config)}${others}.`;
    },
    classifier({ config }) {
      if (!config.likeness) return "It is one more learned table, which turns that into one score per class";
      return "It compares that with what it reads of each picture below the answer, which gives one score for each";
    },
    read: ({ config }) => readBy(config),
    softmaxName({ changes }) {
      return changes.answer === 1
        ? "Softmax turns scores into percentages"
        : `÷ ${changes.answer}, then softmax: percentages`;
    },
    unread({ token, tokenName, config, prefix }) {
      if (config.pool !== "cls" || token < prefix) return "";
      const advice = "choose the class token to see what it reads";
      return `You follow ${tokenName(token)}, which the classifier doesn’t read: ${advice}.`;
    },
  },
  build({ $$, config }) {
    if (config.pool !== "cls") $$(".of-cls").forEach((element) => element.remove());
  },
};
