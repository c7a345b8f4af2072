// The live page: its parts, put together.

import { followAddress } from "./address.js";
import { buildAnswer } from "./answer.js";
import { buildDepth, go } from "./choice.js";
import { computeNow, run } from "./compute.js";
import { hasModifier, reveal } from "./dom.js";
import { buildPad, buildPictures } from "./input.js";
import { copyLink } from "./link.js";
import { buildMap } from "./map.js";
import { buildMeaning } from "./meaning.js";
import { lens } from "./model.js";
import { draw, pageOf, remember, undo } from "./page.js";
import { buildPicker } from "./picker.js";
import { buildSlots } from "./slots.js";
import { begin } from "./start.js";
import { buildPatches } from "./stations/patches.js";
import { buildWhatIf } from "./stations/what_if.js";
import { buildTasks } from "./tasks.js";
import { tourOf } from "./tour.js";
import { buildWatch } from "./watch.js";
import { closeWords, explainWords } from "./words.js";

function wireButtons(page, actions) {
  const all = {
    clear() {
      remember(page);
      page.pad.clear();
    },
    undo: () => undo(page),
    open: () => page.$("input[type=file]").click(),
    link: () => copyLink(page),
    fine() {
      page.state.isFine = !page.state.isFine;
      draw(page);
      explainWords(page);
    },
    ...actions,
  };
  for (const button of page.$$("[data-do]")) button.onclick = () => all[button.dataset.do]();
}

// P is for a projector, Escape closes what a word says. Within somebody else's page keys count only where the focus is
// in ours.
function listen(page, tour) {
  const place = page.hasOwnAddress ? window : page.$(".live");
  place.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeWords(page);
    if (event.key === "p" && !hasModifier(event)) tour.project();
  });
  // What is pressed has the focus, which change() asks for: a finger on a slider doesn't bring it.
  page.$(".live").onpointerdown = ({ target }) => target.closest("button, input")?.focus({ preventScroll: true });
}

function start({ host, root, data, images }) {
  const page = pageOf({ host, root, data });
  const { $, model } = page;
  const tour = tourOf(page);

  function walk(station, place) {
    tour.leave();
    go(page, station, place);
    reveal($(".panel .station:not(.hidden) h3")); // it may be out of sight
  }

  buildPad(page);
  buildPictures(page, images);
  buildAnswer(page);
  buildPicker(page);
  buildSlots(page);
  buildPatches(page);
  buildDepth(page);
  buildMap(page, walk);
  buildMeaning(page);
  wireButtons(page, { ...tour.actions, ...buildWatch(page), ...buildWhatIf(page), ...buildTasks(page) });
  listen(page, tour);

  page.pad.show(page.state.picture);
  computeNow(page);
  tour.begin();
  followAddress(page, tour);
  // In the browser's console: $0.live.run(picture) gives every number of a pass, as the package names them.
  host.live = {
    config: model.config,
    samples: model.samples,
    state: page.state,
    run: (picture, changes) => run(model, picture, changes),
    lens: (one) => lens(one, model.weights, model.config),
  };
}

begin(start);
