// The live page: what happens when the picture, the model or what is chosen changes.

import { followAddress } from "./address.js";
import { answerOf, drawAnswer, drawSizes } from "./answer.js";
import { tidied } from "./changes.js";
import { catchingUp, computeNow, run } from "./compute.js";
import { contextOf } from "./context.js";
import { buildDepth, drawDepth, go } from "./controls.js";
import { begin, hasModifier, isStill } from "./dom.js";
import { buildPad, buildPens, buildPictures } from "./input.js";
import { copyLink } from "./link.js";
import { buildMap, drawMap } from "./map.js";
import { buildMeaning, drawMeaning } from "./meaning.js";
import { lens } from "./model.js";
import { buildPicker, chooseToken, drawPicker } from "./picker.js";
import { buildQuestions, drawQuestions } from "./questions.js";
import { sceneOf, slotsOf } from "./scene.js";
import { STATIONS } from "./stations/index.js";
import { isTold } from "./story.js";
import { tourOf } from "./tour.js";
import { buildWords } from "./words.js";

const MOST_UNDONE = 200;

// Gives the page what draws it: all of it from one scene.
function makeDrawing(page) {
  const { $$, state, sizes } = page;
  const slots = slotsOf(page);
  page.draw = () => {
    drawAnswer(page);
    drawPicker(page);
    $$(".learned").forEach((part) => part.classList.toggle("hidden", !page.states.length || !isTold(page, "learned")));
    const isPatch = state.token >= sizes.prefix;
    $$(".of-patch").forEach((element) => element.classList.toggle("hidden", !isPatch));
    $$(".of-class").forEach((element) => element.classList.toggle("hidden", isPatch));
    const scene = sceneOf(page);
    drawDepth(page, scene);
    drawMap(page, scene);
    drawMeaning(page, scene);
    drawQuestions(page);
    for (const [place, show] of slots) if (place.closest(".station").dataset.station === state.station) show(scene);
    STATIONS[state.station].draw?.(page, scene);
  };
  page.catchUp = catchingUp(page, page.draw);
  page.chooseToken = (token) => chooseToken(page, token);
  page.reveal = (element, block = "nearest") => {
    element.scrollIntoView({ block, behavior: isStill() ? "auto" : "smooth" });
  };
}

// Gives the page what changes it, each so that it can be undone.
function makeChanging(page) {
  const { $, say, state, past } = page;

  page.remember = () => {
    const { picture, sample, changes, message } = state;
    past.push({ picture, sample, changes, message, ink: page.pad.ink() });
    if (past.length > MOST_UNDONE) past.shift();
  };

  // The picture or the model is another one: shows what is known at once, and the answer as soon as it is computed.
  page.follow = async () => {
    page.state.guess = null; // it was about another picture or model
    page.pad.draw();
    drawPicker(page);
    STATIONS["what-if"].draw(page);
    await page.catchUp();
  };
  page.sayAnswer = () => say(`It says ${answerOf(page, page.shown.now)}`);

  page.change = async (changes, { canUndo = true } = {}) => {
    if (canUndo) page.remember();
    state.changes = tidied({ ...state.changes, ...changes });
    await page.follow();
    say(`${$(".list").textContent || "As trained"}. It says ${answerOf(page, page.shown.now)}`);
  };

  page.undo = async () => {
    const { ink, ...before } = past.pop();
    Object.assign(state, before);
    $(".message").textContent = state.message;
    page.pad.show(ink);
    await page.follow();
    page.sayAnswer();
  };
}

function wireButtons(page, tour) {
  const actions = {
    clear() {
      page.remember();
      page.pad.clear();
    },
    undo: page.undo,
    open: () => page.$("input[type=file]").click(),
    link: () => copyLink(page),
    ...tour.actions,
    ...STATIONS.attention.actions(page),
    ...STATIONS["what-if"].actions(page),
  };
  for (const button of page.$$("[data-do]")) button.onclick = () => actions[button.dataset.do]();
}

// P is for a projector. Within somebody else's page the key counts only where the focus is in ours.
function listen({ $, hasOwnAddress }, tour) {
  const place = hasOwnAddress ? window : $(".live");
  place.addEventListener("keydown", (event) => {
    if (event.key === "p" && !hasModifier(event)) tour.project();
  });
}

function start({ host, root, data, images }) {
  const page = contextOf({ host, root, data });
  makeDrawing(page);
  makeChanging(page);
  const tour = tourOf(page);
  page.walk = (name, place) => {
    tour.leave();
    go(page, name, place);
    page.reveal(page.$(page.$(".map .upright") ? ".panel" : ".station:not(.hidden) h3")); // it may be out of sight
  };

  drawSizes(page);
  for (const station of Object.values(STATIONS)) station.build?.(page);
  buildMap(page);
  buildDepth(page);
  buildPicker(page);
  buildMeaning(page);
  buildPad(page);
  buildPens(page);
  buildPictures(page, images);
  buildQuestions(page);
  buildWords(page);
  wireButtons(page, tour);
  listen(page, tour);

  STATIONS["what-if"].draw(page);
  page.pad.show(page.state.picture);
  computeNow(page);
  tour.begin();
  followAddress(page, tour);
  Object.freeze(page); // from here on only what it holds changes: state, shown, map, meaning, watch, past
  // In the browser's console: $0.live.run(picture) gives every number of a pass, as the package names them.
  host.live = {
    config: page.config,
    samples: page.samples,
    state: page.state,
    run: (picture, changes) => run(page, picture, changes),
    lens: (one) => lens(one, page.weights, page.config),
  };
}

begin(start);
