// The guided tour: it opens a stop's station, frames its part, brings both into sight, and says what to try.

import { noteStop } from "./address.js";
import { AS_TRAINED, isChanged } from "./changes.js";
import { go } from "./choice.js";
import { make } from "./dom.js";
import { choosePicture } from "./input.js";
import { change, draw, follow, remember, stateOf } from "./page.js";
import { bringIntoSight, measure } from "./sight.js";
import { taskOf, write } from "./tasks.js";
import { explainWords } from "./words.js";

const FOCUSABLE = "canvas[tabindex], button:not(:disabled), input";

const nextSample = ({ state, model }) => (state.sample + 1) % model.samples.length;

function clearHighlights({ $, $$ }) {
  for (const name of ["tour-highlight", "tour-target"]) {
    for (const element of $$(`.${name}`)) element.classList.remove(name);
  }
  $(".live").classList.remove("at-stop");
}

// Buttons beside the sentence: one for another picture, and those that the station has elsewhere.
function drawTourButtons({ $, model: { samples } }, names) {
  $('[data-do="another"]').classList.toggle("hidden", !names.includes("another") || samples.length < 2);
  $('[data-do="next-task"]').classList.toggle("hidden", !names.includes("next-task"));
  const twins = names.map((name) => $(`:is(.pad, .panel, .answer) [data-do="${name}"]`)).filter(Boolean);
  const copies = twins.map(({ textContent, onclick }) => make("button", { type: "button", textContent, onclick }));
  $(".tour-buttons").replaceChildren(...copies);
}

// The first screen is the picture and the answer alone.
const isFirst = ({ stop, isWhole, isAway }) => stop === 0 && !isWhole && !isAway;

export function tourOf(page) {
  const { $, model, state, stops } = page;
  const { prefix } = model.sizes;
  let patch = model.middle; // that the reader followed last

  function followToken(kind) {
    if (state.token >= prefix) patch = state.token;
    if (kind === "class" && prefix) state.token = 0;
    if (kind === "patch") state.token = patch;
  }

  const isLast = () => state.stop === stops.length - 1;

  function drawButtons() {
    const onwards = isLast() ? "Start again" : state.stop ? "Next" : "Start";
    $(".count").textContent = `${state.stop + 1} of ${stops.length}`;
    $('[data-do="next"]').textContent = state.isAway ? "Return" : onwards;
    $('[data-do="back"]').classList.toggle("hidden", state.stop === 0);
    $('[data-do="whole"]').classList.toggle("hidden", state.stop > 0 || state.isWhole);
    $(".live").classList.toggle("first-screen", isFirst(state));
  }

  // A stop's part gets a frame, and of the open station only what the stop is about is shown.
  function highlightTargets({ highlight, alsoInSight = [] }) {
    const targets = [highlight, ...alsoInSight].map($).filter(Boolean); // of a model that wasn’t tried there is less
    targets[0].classList.add("tour-highlight");
    for (const one of targets) one.classList.add("tour-target");
    $(".live").classList.toggle("at-stop", Boolean($(".panel .tour-target")));
  }

  function show(number, isReset = false) {
    Object.assign(state, { stop: number, isAway: false, guess: null, hasGuessed: false });
    clearHighlights(page);
    $(".input-column").scrollTop = 0;
    $(".link-status").textContent = "";
    state.previous = null;
    const { station, follow: kind, text, buttons = [], hasTasks } = stops[number];
    followToken(kind);
    highlightTargets(stops[number]);
    drawTourButtons(page, buttons);
    go(page, station);
    drawButtons();
    const beginning = isReset ? "All that you changed is reset. " : "";
    write(page, beginning + text + (hasTasks ? taskOf(page) : ""));
  }

  // A stop begins with the model as it was trained; but who returns to where it is broken finds it as they left it.
  async function arrive(number) {
    const isBroken = number === state.stop && stops[number].station === "what-if";
    const isReset = !isBroken && isChanged(state.changes);
    noteStop(page, number);
    if (isReset) await change(page, AS_TRAINED);
    show(number, isReset);
    bringIntoSight(page);
  }

  // Another part was opened: the stop's sentence and its buttons stay, for what it asks may be done there, too.
  function leave() {
    clearHighlights(page);
    state.isAway = true;
    drawButtons();
  }

  // In front of a class: large letters, and only what the stop is about.
  function project() {
    $(".live").classList.toggle("projector");
    draw(page); // numbers that have no room in their cells any more
    if (!state.isAway) bringIntoSight(page);
  }

  // A link's stop, and on it what else the link holds.
  async function resume({ state: linked, ink }) {
    remember(page);
    show(linked.stop);
    Object.assign(state, linked);
    page.pad.show(ink);
    if (linked.isAway) leave();
    go(page, linked.station);
    await follow(page);
  }

  new ResizeObserver(() => {
    measure(page);
    explainWords(page);
  }).observe($(".tour"));
  return {
    count: stops.length,
    begin: () => show(0),
    arrive,
    leave,
    project,
    resume,
    actions: {
      whole() {
        state.isWhole = true;
        drawButtons();
        $('[data-do="next"]').focus(); // the button that was pressed is gone
        draw(page);
      },
      task() {
        const places = [".picker .tour-target", ".tour-highlight", ".tour-target"]; // what is wanted most first
        const found = places.map((place) => $(`${place}:is(${FOCUSABLE}), ${place} :is(${FOCUSABLE})`)).find(Boolean);
        (found ?? $(".panel")).focus();
      },
      another() {
        const next = nextSample(page);
        choosePicture(page, model.samples[next], { sample: next });
        const { afterAnother } = stops[state.stop];
        if (afterAnother) write(page, afterAnother);
      },
      back: () => arrive(state.stop - 1),
      next() {
        if (state.isAway) return arrive(state.stop);
        if (!isLast()) return arrive(state.stop + 1);
        const { picture, sample, message, changes } = state;
        Object.assign(state, stateOf(model), { picture, sample, message, changes });
        return arrive(0);
      },
    },
  };
}
