// Five questions at the end of the story, each answered by changing the model: the page sees when it is done.

import { answerOf, best } from "./answer.js";
import { rowOf } from "./cells.js";
import { AS_TRAINED, describe, isArranged } from "./changes.js";
import { largest, make } from "./dom.js";

const MOST_OF_ALL = 0.8; // an attention weight as large is nearly all

const hasTurned = ({ now, before }) => best(now) !== best(before);
const isOneOff = ({ changes }, pattern) => changes.off.length === 1 && pattern.test(changes.off[0]);

// The largest attention weight of the followed token for a patch, in the chosen head.
function largestWeight({ shown, state, model: { sizes } }) {
  const { weights } = shown.now.blocks[state.layer].attention.heads[state.head];
  return largest(rowOf(weights, state.token, sizes.T).subarray(sizes.prefix));
}

// is(seen, page): seen has the changes, the pass with them, now, and the one without, before.
const QUESTIONS = [
  {
    text: "Only move patches: it names something else.",
    is: (seen) => seen.changes.order && !seen.changes.off.length && hasTurned(seen),
  },
  {
    text: "Only cut one attention: it names something else.",
    is: (seen) => isOneOff(seen, /\d\.attention$/) && !isArranged(seen.changes) && hasTurned(seen),
  },
  {
    text: "Only cut one block: it names the same.",
    is: (seen) => isOneOff(seen, /^blocks\.\d+$/) && !isArranged(seen.changes) && !hasTurned(seen),
  },
  {
    text: "Only cut one shortcut, + z or + z′: it names something else.",
    is: (seen) => isOneOff(seen, /residual$/) && !isArranged(seen.changes) && hasTurned(seen),
  },
  {
    text: "Open an attention and lower its temperature: a token takes over 80 % from one patch.",
    is: ({ changes }, page) => changes.temperature < AS_TRAINED.temperature && largestWeight(page) > MOST_OF_ALL,
  },
];

// Where a reader goes on: a picture of their own where this model takes one, and other pages.
function buildNextPages({ $, model: { nextPages, isOfDigits } }) {
  const own = make("button", { type: "button", textContent: "A picture of your own" });
  own.onclick = () => $("input[type=file]").click();
  const links = Object.entries(nextPages).map(([textContent, href]) => make("a", { textContent, href }));
  const other =
    "type vit-tutorial live --weights photographs in a terminal for a page of photographs, or build the model in lesson 01.";
  $(".next-pages").replaceChildren("Go on: ", ...(isOfDigits ? [] : [own]), ...(links.length ? links : [other]));
}

export function buildQuestions(page) {
  const { $, drawers } = page;
  buildNextPages(page);
  const items = QUESTIONS.map(({ text }) => make("li", {}, make("span", { textContent: text }), make("b")));
  $(".questions").replaceChildren(...items);
  drawers.push(() => drawQuestions(page));
}

// Notes which questions what is shown answers, and how; an answer stays.
function drawQuestions(page) {
  const { $, model, say, shown } = page;
  const { now, before, of } = shown;
  [...$(".questions").children].forEach((item, i) => {
    if (item.className || !QUESTIONS[i].is({ changes: of.changes, now, before }, page)) return;
    item.className = "done";
    const change = describe(of.changes, model.states).join(", ");
    item.lastChild.textContent = ` ✓ ${change}: ${answerOf(model, before)} → ${answerOf(model, now)}`;
    say(`Answered: ${item.textContent}`);
  });
}
