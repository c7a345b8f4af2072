// What the reader guesses of attention before it is shown, at three stops of the story: ask, look and take.

import { digits, percent } from "./cells.js";
import { largest } from "./dom.js";

const placeOfLargest = (values) => values.indexOf(Math.max(...values));
const bestPatch = (values, prefix) => prefix + placeOfLargest(values.subarray(prefix));

// The patches whose k fits q best and worst, and one between, in their order in the picture.
export function candidatesOf({ scores, prefix }) {
  const patches = [...scores.keys()].slice(prefix).sort((a, b) => scores[b] - scores[a]);
  const three = new Set([patches[0], patches[Math.floor(patches.length / 2)], patches.at(-1)]);
  return [...three].sort((a, b) => a - b);
}

// The largest weight, were the temperature half of what it is.
function largestAtHalf(scores) {
  const most = Math.max(...scores);
  return 1 / scores.reduce((sum, score) => sum + Math.exp(2 * (score - most)), 0);
}

// choices(stage, model): on buttons. right(stage): which one is right. before: what is said until then.
export const GUESSES = {
  ask: {
    choices: (stage, { tokenName }) => candidatesOf(stage).map(tokenName),
    before: "A k fits where it has the colour of q, red or blue. Strong colours count most.",
    right: (stage) => candidatesOf(stage).indexOf(bestPatch(stage.scores, stage.prefix)),
  },
  look: {
    choices: () => ["less than 20 %", "20 to 50 %", "more than 50 %"],
    right: ({ weights }) => [0.2, 0.5].filter((bound) => largest(weights) > bound).length,
    before: "Each tile shows the score of its token. Softmax comes next.",
  },
  take: {
    choices: () => ["it grows", "it stays", "it shrinks"],
    right: () => 0,
    before: "Each tile shows the share of its token. The v’s come next.",
  },
};

// The token with the largest of some values, and the patch where it isn't one.
function firstOf({ theName, placeOf }, values, prefix, says, write) {
  const placed = (token) => (token < prefix ? `${theName(token)} (CLS)` : `${theName(token)} (${placeOf(token)})`);
  const most = placeOfLargest(values);
  const patch = bestPatch(values, prefix);
  const first = `${placed(most)} ${says}, ${write(values[most])}`;
  return most === patch ? first : `${first}; among the patches it is ${placed(patch)}, ${write(values[patch])}`;
}

const RESULTS = {
  ask: (model, { scores, prefix }) => firstOf(model, scores, prefix, "fits best", digits),
  look: (model, { weights, prefix }) => firstOf(model, weights, prefix, "has most", percent),
  take(_, { scores, weights }) {
    const [now, atHalf] = [largest(weights), largestAtHalf(scores)].map(percent);
    return `the largest share is ${now}, at half the temperature ${atHalf}`;
  },
};

// What a part of attention came to, and what became of the reader's guess at it.
export function resultOf({ model, state, stops }, part, stage) {
  const result = RESULTS[part](model, stage);
  const text = result[0].toUpperCase() + result.slice(1);
  const { guess, stop } = state;
  if (guess === null || stops[stop].watch !== part) return `${text}.`;
  const { choices, right } = GUESSES[part];
  if (guess === right(stage)) return `${text}: as you guessed.`;
  return `${text}. You guessed: ${choices(stage, model)[guess]}.`;
}
