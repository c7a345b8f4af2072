import { best } from "../answer.js";
import { AS_TRAINED, toggled } from "../changes.js";
import { inSlices, pass } from "../compute.js";
import { change } from "../page.js";

const MOST_ORDERS = 10; // of the patches, that are tried

// A slider of a change. One drag, or one key, is one change to undo.
function wireSlider(page, name, valueAt) {
  const slider = page.$(`[name="${name}"]`);
  let isDragging = false;
  slider.oninput = () => {
    change(page, { [name]: valueAt(Number(slider.value)) }, { canUndo: !isDragging });
    isDragging = true;
  };
  slider.onchange = slider.onpointerdown = () => {
    isDragging = false; // a drag back to where it began ends without a change
  };
}

function drawSlider({ $ }, name, place, text) {
  const slider = $(`[name="${name}"]`);
  slider.value = place;
  slider.nextSibling.textContent = text;
  slider.setAttribute("aria-valuetext", text);
}

function orderOf(count) {
  const order = [...Array(count).keys()];
  for (let i = count - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// Some orders leave the answer as it is, which teaches nothing: the first of several that changes it is taken.
async function shuffle(page) {
  await page.catchUp();
  const { model, shown } = page;
  const { now, of } = shown;
  let order;
  for (let i = 0; i < MOST_ORDERS; i++) {
    order = orderOf(model.sizes.N);
    const found = await inSlices(pass(model, of.picture, { ...of.changes, order }), () => true);
    if (best(found) !== best(now)) break;
  }
  await change(page, { order });
}

function drawControls(page) {
  const { $, state, model } = page;
  const { scale, temperature, position, hidden, learned } = state.changes;
  const patch = state.token - model.sizes.prefix;
  $('[name="scale"]').checked = scale;
  $(`[name="position"][value="${position}"]`).checked = true;
  drawSlider(page, "temperature", Math.round(10 * Math.log10(temperature)), String(temperature));
  const moment = learned === null ? "trained" : model.states[learned].name;
  drawSlider(page, "learned", learned ?? model.states.length, moment);
  $('[data-do="hide"]').disabled = patch < 0;
  $('[data-do="hide"]').textContent = hidden.includes(patch) ? "Show the chosen patch" : "Hide the chosen patch";
}

// The controls of all changes, two of which stand elsewhere; returns what the buttons do.
export function buildWhatIf(page) {
  const { $, $$, state, model, drawers, previews } = page;
  const last = model.states.length;
  $('[name="scale"]').onchange = (event) => change(page, { scale: event.target.checked });
  for (const input of $$('[name="position"]')) input.onchange = () => change(page, { position: input.value });
  wireSlider(page, "temperature", (place) => Number((10 ** (place / 10)).toPrecision(2))); // from a tenth to ten
  $('[name="learned"]').max = last;
  wireSlider(page, "learned", (place) => (place === last ? null : place));
  previews.push(() => drawControls(page));
  drawers.push(() => drawControls(page));
  return {
    reset: () => change(page, AS_TRAINED),
    hide: () => change(page, { hidden: toggled(state.changes.hidden, state.token - model.sizes.prefix) }),
    shuffle: () => shuffle(page),
  };
}

export const whatIfStation = {
  title: "What if?",
  texts: {
    choosePatch({ token, tokenName, prefix }) {
      if (token < prefix) return `You follow the ${tokenName(token)}: choose a patch to hide it.`;
      return "The chosen patch is the one with the blue frame.";
    },
  },
};
