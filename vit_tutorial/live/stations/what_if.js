import { best } from "../answer.js";
import { AS_TRAINED, toggled } from "../changes.js";
import { inSlices, pass } from "../compute.js";

const MOST_ORDERS = 10; // of the patches, that are tried

// A slider of a change. One drag, or one key, is one change to undo.
function wireSlider({ $, change }, name, valueAt) {
  const slider = $(`[name="${name}"]`);
  let isDragging = false;
  slider.oninput = () => {
    change({ [name]: valueAt(Number(slider.value)) }, { canUndo: !isDragging });
    isDragging = true;
  };
  slider.onchange = slider.onpointerdown = () => {
    isDragging = false; // a drag back to where it began ends without a change
  };
}

function drawTemperature({ $, state }) {
  const { temperature } = state.changes;
  const slider = $('[name="temperature"]');
  slider.value = Math.round(10 * Math.log10(temperature));
  slider.nextSibling.textContent = temperature;
}

// The state of the training, from the noise that it began with.
function drawLearned({ $, state, states }) {
  const { learned } = state.changes;
  const slider = $('[name="learned"]');
  slider.value = learned ?? states.length;
  slider.nextSibling.textContent = learned === null ? "trained" : states[learned].name;
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
  const { sizes, change } = page;
  const { now, of } = page.shown;
  let order;
  for (let i = 0; i < MOST_ORDERS; i++) {
    order = orderOf(sizes.N);
    const found = await inSlices(pass(page, of.picture, { ...of.changes, order }), () => true);
    if (best(found) !== best(now)) break;
  }
  await change({ order });
}

export const whatIfStation = {
  title: "What if?",
  texts: {
    choosePatch({ token, tokenName, prefix }) {
      if (token < prefix) return `You follow the ${tokenName(token)}: choose a patch to hide it.`;
      return "The chosen patch is the one with the blue frame.";
    },
  },
  actions(page) {
    const { state, sizes, change } = page;
    const patch = () => state.token - sizes.prefix;
    return {
      reset: () => change(AS_TRAINED),
      hide: () => change({ hidden: toggled(state.changes.hidden, patch()) }),
      shuffle: () => shuffle(page),
    };
  },
  build(page) {
    const { $, $$, change } = page;
    $('[name="scale"]').onchange = (event) => change({ scale: event.target.checked });
    for (const input of $$('[name="position"]')) input.onchange = () => change({ position: input.value });
    wireSlider(page, "temperature", (place) => Number((10 ** (place / 10)).toPrecision(2))); // from a tenth to ten
    const { length } = page.states;
    $('[name="learned"]').max = length;
    wireSlider(page, "learned", (place) => (place === length ? null : place));
  },
  draw(page) {
    const { $, state, sizes } = page;
    const { scale, position, hidden } = state.changes;
    $('[name="scale"]').checked = scale;
    $(`[name="position"][value="${position}"]`).checked = true;
    drawTemperature(page);
    drawLearned(page);
    $('[data-do="hide"]').disabled = state.token < sizes.prefix;
    const isHidden = hidden.includes(state.token - sizes.prefix);
    $('[data-do="hide"]').textContent = isHidden ? "Show the chosen patch" : "Hide the chosen patch";
  },
};
