// What the reader guesses of attention before it is shown, at three stops of the story: ask, look and take.

import { digits, percent } from "./cells.js";
import { largest } from "./dom.js";

// How many tokens give half of all that flows in, the largest weights first.
function halfCount(weights) {
  const order = [...weights].sort((a, b) => b - a);
  let count = 0;
  for (let sum = 0; sum < 0.5; count++) sum += order[count];
  return count;
}

const countAbove = (bounds, value) => bounds.filter((bound) => value > bound).length;
const placeOfLargest = (values) => values.indexOf(Math.max(...values));
const bestPatch = (values, prefix) => prefix + placeOfLargest(values.subarray(prefix));

// choices: on buttons; none: a patch is clicked. right(stage): which one is right. before: what is said until then.
export const GUESSES = {
  ask: {
    before: "Each tile shows its token’s k. It fits q if it is red where q is red, and blue where q is blue.",
    right: ({ scores, prefix }) => bestPatch(scores, prefix),
  },
  look: {
    choices: ["less than 20 %", "20 to 50 %", "more than 50 %"],
    right: ({ weights }) => countAbove([0.2, 0.5], largest(weights)),
    before: "Each tile shows the score of its token. Softmax comes next.",
  },
  take: {
    choices: ["1", "2 or 3", "4 or more"],
    right: ({ weights }) => countAbove([1, 3], halfCount(weights)),
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
  take(_, { weights }) {
    const count = halfCount(weights);
    return count === 1 ? "one token gives half of it or more" : `${count} tokens give half of it`;
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
  const name = choices ? choices[guess] : `${model.theName(guess)}, ${digits(stage.scores[guess])}`;
  return `${text}. You guessed ${name}.`;
}
