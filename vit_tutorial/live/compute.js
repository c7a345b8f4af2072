// Passes of the model, so that the page shows the newest picture and changes.

import { AS_TRAINED, isChanged } from "./changes.js";
import { finish, vit } from "./model.js";
import { normalise, rearrange } from "./pictures.js";

const SLICE = 12; // milliseconds of computing at a time: a frame has 17
const nextFrame = () => new Promise(requestAnimationFrame);

// The weights as they are, or as they were at some moment of the training.
export const weightsOf = ({ weights, states }, { learned = null }) =>
  learned === null ? weights : states[learned].weights;

export function pass(model, picture, changes = AS_TRAINED) {
  const image = normalise(rearrange(picture, model, changes), model);
  return vit(image, weightsOf(model, changes), model.config, changes);
}

export const run = (model, picture, changes) => finish(pass(model, picture, changes));

function* bothPasses({ model, shown }, { picture, changes }) {
  const before = shown.of.picture === picture ? shown.before : yield* pass(model, picture);
  const now = isChanged(changes) ? yield* pass(model, picture, changes) : before;
  return { now, before, of: { picture, changes } };
}

// At once, before the page is drawn for the first time.
export function computeNow(page) {
  Object.assign(page.shown, finish(bothPasses(page, page.state)));
}

// A pass may take longer than a frame: so it is made in slices, and between them the page draws and hears the reader.
// Returns null if it is no longer wanted.
export async function inSlices(steps, isWanted) {
  let start = performance.now();
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (performance.now() - start < SLICE) continue;
    await nextFrame();
    if (!isWanted()) return null;
    start = performance.now();
  }
}

// A promise that the page shows the newest picture and changes: catchUp(). A pass for older ones is given up, but not
// while a line is drawn: it shows where the pen was a moment ago, and without it nothing would be seen before the pen
// is lifted.
export function catchingUp(page, draw) {
  const { $, state, shown } = page;
  const isNewest = ({ picture, changes }) => picture === state.picture && changes === state.changes;
  let underWay = null;

  async function once() {
    $(".answer").ariaBusy = "true";
    if (state.isDrawing) await nextFrame();
    const wanted = { picture: state.picture, changes: state.changes };
    const found = await inSlices(bothPasses(page, wanted), () => state.isDrawing || isNewest(wanted));
    if (!found) return;
    Object.assign(shown, found);
    draw();
  }

  return async () => {
    while (!isNewest(shown.of)) {
      underWay ??= once().finally(() => {
        underWay = null;
      });
      await underWay;
    }
    $(".answer").ariaBusy = "false";
  };
}
