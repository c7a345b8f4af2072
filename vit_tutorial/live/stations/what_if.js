import { make } from "../../pages/page.js";
import { best } from "../answer.js";
import { cells, percent } from "../cells.js";
import { AS_TRAINED, isArranged, partName, toggled } from "../changes.js";
import { inSlices, pass } from "../compute.js";

const MOST_ORDERS = 10; // of the patches, that are tried

// A share in tenths of a hundredth, as percent() shows it: so that changes agree with what is shown.
const tenths = (share) => Math.round(10 * parseFloat(percent(share)));
const points = (change) => (change ? `${change < 0 ? "−" : "+"}${(Math.abs(change) / 10).toFixed(1)}` : "0.0");

// ------------------------------------------------------------------------------------------------- temperatures

// A slider from a tenth to ten. One drag, or one key, is one change to undo.
function wireTemperature({ $, change }, name) {
  const slider = $(`[name="${name}"]`);
  let isDragging = false;
  slider.oninput = () => {
    const value = Number((10 ** (Number(slider.value) / 10)).toPrecision(2));
    change({ [name]: value }, { canUndo: !isDragging });
    isDragging = true;
  };
  slider.onchange = slider.onpointerdown = () => {
    isDragging = false; // a drag back to where it began ends without a change
  };
}

function drawTemperature({ $, state }, name) {
  const slider = $(`[name="${name}"]`);
  slider.value = Math.round(10 * Math.log10(state.changes[name]));
  slider.nextSibling.textContent = state.changes[name];
}

// ------------------------------------------------------------------------------------------------- which part matters?

const NOUNS = { heads: "head", parts: "attention or MLP", patches: "patch" };

// What can be tried: {name, changes without it}.
function trials({ sizes, of }, kind) {
  const { L, h, N } = sizes;
  const { off, hidden } = of.changes;
  if (kind === "patches") {
    return Array.from({ length: N }, (_, n) => ({ title: `patch ${n}`, changes: { hidden: [...hidden, n] } }));
  }
  const heads = Array.from({ length: h }, (_, head) => [`head ${head}`, `attention.heads.${head}`]);
  const inner =
    kind === "heads"
      ? heads
      : [
          ["attention", "attention"],
          ["MLP", "mlp"],
        ]; // prettier-ignore
  return Array.from({ length: L }, (_, layer) => {
    return inner.map(([name, part]) => {
      const whole = `blocks.${layer}.${part}`;
      return { name, part: whole, title: partName(whole), changes: { off: [...off, whole] } };
    });
  }).flat();
}

const sayTried = ({ $ }, text) => {
  $('[data-text="tried"]').textContent = text;
};

// Which one takes most from the answer, as far as the numbers that are shown tell; falls: in tenths of a point.
function mattering(tried, falls, was, noun) {
  const most = Math.max(...falls);
  if (most <= 0) return `Without any single ${noun} it has no less.`;
  const same = tried.filter((_, i) => falls[i] === most);
  const left = percent((tenths(was) - most) / 1000);
  if (same.length > 1) return `It falls most, to ${left}, without any one of ${same.length} of them.`;
  return `It falls most without ${same[0].title}: to ${left}, a change of ${points(-most)}.`;
}

async function tryEach(page, kind) {
  const mine = ++page.trying; // whoever is not the last gives up
  await page.catchUp();
  if (mine !== page.trying) return;
  const { $, now, of, classes } = page;
  const k = best(now);
  const was = now.probabilities[k];
  const tried = trials(page, kind);
  const falls = []; // how far the answer falls without each, in tenths of a percentage point

  function* tryAll() {
    for (const { changes } of tried) {
      const { probabilities } = yield* pass(page, of.picture, { ...of.changes, ...changes });
      falls.push(tenths(was) - tenths(probabilities[k]));
      sayTried(page, `${falls.length} of ${tried.length} …`);
    }
    return falls;
  }

  if (!(await inSlices(tryAll(), () => mine === page.trying))) return;
  const place = make("div", {}, make("h4", { textContent: `Each ${NOUNS[kind]}` }));
  place.dataset.kind = kind;
  $(`.tried > [data-kind="${kind}"]`)?.remove();
  $(".tried").prepend(place); // the newest comes first
  if (kind === "patches") drawTriedPatches(page, place, falls);
  else drawTriedParts(page, place, tried, falls);
  const sentences = [
    `${classes[k]} had ${percent(was)}.`,
    mattering(tried, falls, was, NOUNS[kind]),
    "The change without each one, in percentage points. Effects needn’t add up: parts can stand in for each other.",
  ];
  sayTried(page, sentences.join(" "));
  page.reveal($('[data-spot="matters"]'), "start");
}

function drawTriedPatches(page, place, falls) {
  const note =
    "Blue: the answer loses. Red: it gains. A hidden patch is painted over, so an empty corner can matter, too.";
  place.append(make("p", { className: "note", textContent: note }));
  cells(page, place, "What each patch is worth").show({
    values: Float32Array.from(falls, (fall) => -fall),
    columns: page.sizes.columns,
    square: true,
    write: points,
    name: (i) => `without patch ${i}`,
    clicked: (i) => page.chooseToken(i + page.sizes.prefix),
  });
}

function drawTriedParts(page, place, tried, falls) {
  const most = Math.max(...falls.map(Math.abs), 5);
  const buttons = tried.map(({ name, part }, i) => {
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
  const across = tried.length / page.sizes.L;
  const rows = Array.from({ length: page.sizes.L }, (_, layer) => {
    const label = make("span", { className: "when", textContent: `block ${layer}` });
    return make("div", { className: "tried-row" }, label, ...buttons.slice(layer * across, (layer + 1) * across));
  });
  place.append(...rows);
}

// What was tried is about one picture and one model: it goes as soon as either changes.
export function forgetTried(page) {
  page.trying++;
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
  const { of, now, sizes, change } = page;
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
      if (token < prefix) return `You follow the ${tokenName(token)}: choose a patch to hide or repeat it.`;
      return "The chosen patch is the one with the blue frame.";
    },
  },
  actions(page) {
    const { state, sizes, change } = page;
    const patch = () => state.token - sizes.prefix;
    return {
      reset: () => change(AS_TRAINED),
      hide: () => change({ hidden: toggled(state.changes.hidden, patch()) }),
      repeat: () => change({ order: Array(sizes.N).fill(state.changes.order?.[patch()] ?? patch()) }),
      shuffle: () => shuffle(page),
      restore: () => change({ order: null, hidden: [] }),
      "try-heads": () => tryEach(page, "heads"),
      "try-parts": () => tryEach(page, "parts"),
      "try-patches": () => tryEach(page, "patches"),
    };
  },
  build(page) {
    const { $, $$, change } = page;
    $('[name="scale"]').onchange = (event) => change({ scale: event.target.checked });
    for (const input of $$('[name="position"]')) input.onchange = () => change({ position: input.value });
    wireTemperature(page, "temperature");
    wireTemperature(page, "answer");
  },
  draw(page) {
    const { $, state, sizes } = page;
    const { scale, position, hidden } = state.changes;
    $('[name="scale"]').checked = scale;
    $(`[name="position"][value="${position}"]`).checked = true;
    drawTemperature(page, "temperature");
    drawTemperature(page, "answer");
    for (const name of ["hide", "repeat"]) $(`[data-do="${name}"]`).disabled = state.token < sizes.prefix;
    const isHidden = hidden.includes(state.token - sizes.prefix);
    $('[data-do="hide"]').textContent = isHidden ? "Show the chosen patch" : "Hide the chosen patch";
    $('[data-do="restore"]').disabled = !isArranged(state.changes);
  },
};
