// The page's state, and all that changes it. What shows it is registered by the page's parts: previews, which need
// nothing computed, and drawers, which show a pass of the model.

import { answerOf } from "./answer.js";
import { AS_TRAINED, describe, tidied } from "./changes.js";
import { catchingUp } from "./compute.js";
import { scrollAround } from "./dom.js";
import { factsOf } from "./facts.js";
import { sceneOf } from "./scene.js";
import { storyOf } from "./story.js";

const MOST_UNDONE = 200;

export function stateOf({ samples, middle }) {
  return {
    picture: samples[0],
    sample: 0, // its number; -1: it is none
    message: "", // what is said of it
    changes: { ...AS_TRAINED },
    stop: 0, // of the tour
    isAway: false, // the reader left it for another part
    task: 0, // of the last stop
    isWhole: false, // all of the diagram is shown, and not only what the story has told
    station: "patches",
    token: middle,
    previous: null, // the token that was chosen before
    guess: null, // what the reader guesses of attention: a patch, or the number of a choice
    hasGuessed: false,
    layer: 0,
    head: 0,
    rowOfE: 0, // whose sum is shown
    unit: null, // the hidden unit that was pointed at; null: the one that the token excites most
    isDrawing: false,
    isFine: false, // every step of a block is shown
    isCutting: false, // a click on a part of the map cuts it, in place of opening it
  };
}

export function pageOf({ host, root, data }) {
  const $ = (selector) => root.querySelector(selector);
  const model = factsOf(data);
  const page = {
    host,
    hasOwnAddress: host.parentElement?.matches("main[data-own-page]") ?? false,
    $,
    $$: (selector) => [...root.querySelectorAll(selector)],
    say: (text) => {
      $(".live-region").textContent = text;
    },
    colourOf: (name) => getComputedStyle(host).getPropertyValue(name).trim(),
    model,
    stops: storyOf(model),
    state: stateOf(model),
    past: [], // pictures and changes to go back to
    shown: { now: null, before: null, of: {} }, // a pass, another as trained, and the picture and changes of both
    arranged: new OffscreenCanvas(model.sizes.W, model.sizes.H), // the picture as the model gets it
    pad: null, // the drawing pad, of input.js
    previews: [],
    drawers: [], // each takes a scene
  };
  page.catchUp = catchingUp(page, () => draw(page));
  return page;
}

export function draw(page) {
  const scene = sceneOf(page);
  for (const show of page.drawers) show(scene);
}

// The picture or the model is another one: shows what is known at once, and the answer as soon as it is computed.
export async function follow(page) {
  page.state.guess = null; // it was about another picture or model
  for (const show of page.previews) show();
  await page.catchUp();
}

export const sayAnswer = ({ say, model, shown }) => say(`It says ${answerOf(model, shown.now)}`);

// Keeps the picture and the changes, to be undone.
export function remember({ state, past, pad }) {
  const { picture, sample, changes, message } = state;
  past.push({ picture, sample, changes, message, ink: pad.ink() });
  if (past.length > MOST_UNDONE) past.shift();
}

export async function undo(page) {
  const { ink, ...before } = page.past.pop();
  Object.assign(page.state, before);
  tell(page, before.message);
  page.pad.show(ink);
  await follow(page);
  sayAnswer(page);
}

// Says something of the picture, which comes back with it.
export function tell({ $, state }, text) {
  state.message = text;
  $(".message").textContent = text;
}

// Changes the model or its patches. What is said of it above the model pushes nothing from under the pointer.
export async function change(page, changes, { canUndo = true } = {}) {
  const { host, $, state, say, model, shown } = page;
  const topOfModel = () => $(".model-column").getBoundingClientRect().top;
  const top = topOfModel();
  const isPressedAbove = $(".input-column:focus-within"); // asked now: a button that is disabled loses the focus
  if (canUndo) remember(page);
  state.changes = tidied({ ...state.changes, ...changes });
  await follow(page);
  if (!isPressedAbove) scrollAround(host, topOfModel() - top);
  const words = describe(state.changes, model.states).join("; ");
  say(`${words || "As trained"}. It says ${answerOf(model, shown.now)}`);
}
