// The model's answer, beside the one before the changes.

import { percent } from "./cells.js";
import { describe, isArranged, isChanged, isInvisible } from "./changes.js";
import { make, unbroken } from "./dom.js";
import { hasReached } from "./story.js";

export const FEW = 12; // classes that all have a place
const LIKELIEST = 8; // shown of more

export const best = ({ probabilities }) => probabilities.indexOf(Math.max(...probabilities));
// An untrained model gives all classes the same: the first of them is no answer.
const isTie = ({ probabilities }) => Math.max(...probabilities) - Math.min(...probabilities) < 1e-3;

export function answerOf({ classes }, run) {
  return isTie(run) ? "nothing" : `${classes[best(run)]}, ${percent(run.probabilities[best(run)])}`;
}

// The page's introduction: what the model is, and what it can answer.
function drawSizes({ $, model: { classes, config } }) {
  const count = classes.length.toLocaleString("en");
  const names = classes.length <= FEW ? `one of these: ${classes.join(", ")}` : `one of ${count} names`;
  const numbers = config.parameters.toLocaleString("en");
  $(".sizes").textContent = `It has ${numbers} learned numbers, and always answers with ${names}.`;
}

function drawBars({ $, model: { classes }, shown: { now, before } }, changed) {
  const all = [...classes.keys()];
  const ranked = () => all.sort((a, b) => now.probabilities[b] - now.probabilities[a]).slice(0, LIKELIEST);
  const order = classes.length <= FEW ? all : ranked();
  const bars = $(".bars");
  if (bars.childElementCount !== order.length) {
    bars.replaceChildren(...order.map(() => make("li", {}, make("span"), make("i"), make("b"))));
  }
  order.forEach((k, i) => {
    const [label, bar, number] = bars.children[i].children;
    Object.assign(label, { textContent: classes[k], title: classes[k] });
    number.textContent = percent(now.probabilities[k]);
    bar.style.setProperty("--fraction", `${100 * now.probabilities[k]}%`);
    bar.style.setProperty("--before", changed ? `${100 * before.probabilities[k]}%` : "-10%");
    bars.children[i].className = k === best(now) && !isTie(now) ? "top" : "";
  });
}

function difference({ model, shown: { before, of } }) {
  const answer = `Before, it said ${answerOf(model, before)}.`;
  if (!isInvisible(of.changes, model.sizes.N)) return answer;
  return `${answer} The patches moved, but without positions it can’t tell: moved or in place, it says the same.`;
}

function hint({ state, model: { classes, titles, sizes } }) {
  if (isArranged(state.changes)) return "· as the model gets it";
  if (state.sample < 0) return sizes.C === 1 ? "· draw on it" : "· paint on it, or drop one";
  const title = titles[state.sample] ?? "";
  return title && `· ${classes.includes(title) ? `right answer: ${title}` : title}`;
}

function drawAnswer(page) {
  const { $, past, state, model, shown } = page;
  const { now, before, of } = shown;
  const changed = isChanged(of.changes);
  drawBars(page, changed);
  $(".prediction").textContent = answerOf(model, now);
  const says = changed ? `${answerOf(model, before)} →` : "It says";
  $(".tour-prediction").textContent = unbroken(`${says} ${answerOf(model, now)}`);
  $(".changes").classList.toggle("hidden", !changed);
  $(".list").textContent = changed ? `${describe(of.changes, model.states).join("; ")}.` : "";
  $(".difference").textContent = unbroken(difference(page));
  $(".pad .hint").textContent = hint(page);
  $(".learned").classList.toggle("hidden", !model.states.length || !hasReached(page, "learned"));
  $('[data-do="undo"]').disabled = !past.length;
  $('[data-do="reset"]').disabled = !isChanged(state.changes);
}

export function buildAnswer(page) {
  drawSizes(page);
  page.drawers.push(() => drawAnswer(page));
}
