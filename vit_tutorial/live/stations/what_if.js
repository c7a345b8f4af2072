import { best } from "../answer.js";
import { percent } from "../cells.js";
import { AS_TRAINED, toggled } from "../changes.js";
import { inSlices, pass } from "../compute.js";
import { make } from "../dom.js";

const MOST_ORDERS = 10; // of the patches, that are tried

// A share in tenths of a hundredth, as percent() shows it: so that changes agree with what is shown.
const tenths = (share) => Math.round(10 * parseFloat(percent(share)));
const points = (change) => (change ? `${change < 0 ? "−" : "+"}${(Math.abs(change) / 10).toFixed(1)}` : "0.0");

// ------------------------------------------------------------------------------------------------- sliders

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

// ------------------------------------------------------------------------------------------------- which head matters?

// The heads, layer by layer: {name, part, changes without it}.
function headsOf({ sizes, shown }) {
  const { off } = shown.of.changes;
  return Array.from({ length: sizes.L * sizes.h }, (_, i) => {
    const head = i % sizes.h;
    const part = `blocks.${Math.floor(i / sizes.h)}.attention.heads.${head}`;
    return { name: `head ${head}`, part, changes: { off: [...off, part] } };
  });
}

const sayTried = ({ $ }, text) => {
  $('[data-text="tried"]').textContent = text;
};

async function tryHeads(page) {
  const mine = ++page.trials.count; // whoever is not the last gives up
  await page.catchUp();
  if (mine !== page.trials.count) return;
  const { $, classes } = page;
  const { now, of } = page.shown;
  const k = best(now);
  const was = now.probabilities[k];
  const heads = headsOf(page);
  const falls = []; // how far the answer falls without each, in tenths of a percentage point

  function* tryAll() {
    for (const { changes } of heads) {
      const { probabilities } = yield* pass(page, of.picture, { ...of.changes, ...changes });
      falls.push(tenths(was) - tenths(probabilities[k]));
      sayTried(page, `${falls.length} of ${heads.length} …`);
    }
    return falls;
  }

  if (!(await inSlices(tryAll(), () => mine === page.trials.count))) return;
  drawTried(page, heads, falls);
  const change = "The change without each one, in percentage points.";
  sayTried(page, `${classes[k]} had ${percent(was)}. ${change} Effects needn’t add up: one can stand in for another.`);
  page.reveal($('[data-spot="matters"]'), "start");
}

function drawTried(page, heads, falls) {
  const { h, L } = page.sizes;
  const most = Math.max(...falls.map(Math.abs), 5);
  const buttons = heads.map(({ name, part }, i) => {
    const button = make("button", { type: "button", className: "drop", title: "Switch it off, or on" });
    button.onclick = () => {
      page.$(`.map [data-part="${part}"]`).focus(); // this table goes, as it is about the model before
      page.cut(part);
    };
    button.append(make("span", { textContent: name }), make("b", { textContent: points(-falls[i]) }));
    button.style.setProperty("--share", `${(100 * Math.abs(falls[i])) / most}%`);
    button.classList.toggle("gain", falls[i] < 0);
    return button;
  });
  const rows = Array.from({ length: L }, (_, layer) => {
    const label = make("span", { className: "when", textContent: `block ${layer}` });
    return make("div", { className: "tried-row" }, label, ...buttons.slice(layer * h, (layer + 1) * h));
  });
  page.$(".tried").replaceChildren(...rows);
}

// What was tried is about one picture and one model: it goes as soon as either changes.
export function forgetTried(page) {
  page.trials.count++;
  page.$(".tried").replaceChildren();
  sayTried(page, "");
}

// ------------------------------------------------------------------------------------------------- the station

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
      "try-heads": () => tryHeads(page),
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
