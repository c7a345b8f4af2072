// Two guided tours, the story and one token's way: at each stop a station, what lights up there, the followed token
// ("patch" or "class"; none: the reader's), and a sentence. A stop without a sentence, for this model, is left out.

import { go } from "./controls.js";
import { fly, takenCells, takenPatch } from "./flight.js";

const STORY = [
  {
    station: "patches",
    spot: ".pad canvas",
    follow: "patch",
    text: ({ canDraw }) =>
      canDraw
        ? "Press Clear and draw a digit: the answer follows your pen."
        : "Choose a picture below, or drop your own. The model says what it shows.",
  },
  {
    station: "patches",
    spot: ".picker canvas",
    follow: "patch",
    text: ({ N }) => `The model gets the picture in ${N} pieces, called patches. Click one to follow it.`,
  },
  {
    station: "embedding",
    spot: "[data-spot=token]",
    follow: "patch",
    text: ({ D }) => `A table learned in training, E, turns the patch into ${D} numbers: a token.`,
  },
  {
    station: "embedding",
    spot: '[data-meaning="row"]',
    follow: "patch",
    text: ({ isTried }) =>
      isTried &&
      "Each number measures one pattern. For this one, these six patches scored highest. " +
        "Point at other numbers of the token.",
  },
  {
    station: "positions",
    spot: "[data-spot=position]",
    follow: "patch",
    text: ({ isPlaced }) => isPlaced && "The token doesn’t say where its patch was. So a list for its place is added.",
  },
  {
    station: "positions",
    spot: ".special",
    follow: "class",
    text: ({ prefix }) =>
      prefix && "One more token joins, of no patch: the class token. It gathers what decides the class. Follow it.",
  },
  {
    station: "attention",
    spot: "[data-spot=weights]",
    follow: "class",
    text: ({ prefix }) =>
      `Attention: ${prefix ? "the class token" : "a token"} looks at every token, itself too. ` +
      "Where the map is light, it takes most.",
  },
  {
    station: "attention",
    spot: ".heads",
    follow: "class",
    text: ({ h }) => h > 1 && `It looks in ${h} ways at once: ${h} heads. Choose another: what does that one look for?`,
  },
  {
    station: "mlp",
    spot: "[data-spot=hidden]",
    follow: "class",
    text: ({ M }) => `Then the MLP: ${M} small detectors, for each token alone. Point at one: what switches it on?`,
  },
  {
    station: "layers",
    spot: "[data-spot=lens]",
    follow: "class",
    text: ({ L }) =>
      `Attention and MLP are a block. Here ${L} follow each other, each with its own numbers. ` +
      "When does the right answer appear?",
  },
  {
    station: "head",
    spot: "[data-spot=probabilities]",
    follow: "class",
    text: ({ prefix }) =>
      `The classifier reads ${prefix ? "the class token" : "all tokens"}, and gives each class a percentage. ` +
      "It is called a head, too: another kind.",
  },
  {
    station: "what-if",
    spot: ".map",
    follow: "patch",
    text: () => "Now break it: click parts of the diagram to cut them. Does the answer survive?",
  },
];
// One token's way: in at the patch, slowly through the first block, then block by block to the answer.
const WAY_IN = [
  {
    station: "patches",
    spot: "[data-spot=pixels]",
    follow: "patch",
    text: () => "This is your patch. Choose another on the left, whenever you like.",
  },
  {
    station: "patches",
    spot: "[data-spot=flat]",
    follow: "patch",
    text: ({ length }) => `Its pixels become one list of ${length} numbers. Point at one to see which pixel it was.`,
  },
  {
    station: "embedding",
    spot: "[data-spot=token]",
    follow: "patch",
    text: ({ D }) => `The learned table E turns the list into ${D} numbers, the token.`,
  },
  {
    station: "positions",
    spot: "[data-spot=z0]",
    text: ({ isPlaced }) => isPlaced && "The list of its place is added: now it tells what and where.",
  },
];
const FIRST_BLOCK = [
  {
    station: "attention",
    spot: "[data-spot=qkv]",
    text: () => "It asks with q. Every token answers with k, and gives v.",
  },
  {
    station: "attention",
    spot: "[data-spot=weights]",
    text: () => "Where its q fits a k, it looks. Lines on the picture: where, and how much.",
  },
  {
    station: "attention",
    spot: "[data-spot=sums]",
    text: () => "It takes from each token’s v, most where it looks most.",
  },
  {
    station: "attention",
    spot: "[data-spot=middle]",
    text: ({ h }) => `${h > 1 ? `${h} heads look in ${h} ways: what all` : "What it"} took is added to the token.`,
  },
  {
    station: "mlp",
    spot: "[data-spot=hidden]",
    text: ({ M }) => `Then the MLP: ${M} small detectors look for something in this token alone.`,
  },
  {
    station: "mlp",
    spot: "[data-spot=out]",
    text: () => "What they found is added, too. That was one block.",
  },
];
const NEXT_BLOCK = [
  {
    station: "attention",
    spot: "[data-spot=weights]",
    text: ({ layer }) => `Block ${layer}: it looks again, with other learned tables.`,
  },
  {
    station: "mlp",
    spot: "[data-spot=out]",
    text: ({ layer, L }) =>
      `Block ${layer} has added its part. ` +
      (layer === L - 1 ? "That was the last block." : "The diagram’s words: the answer so far."),
  },
];
const WAY_OUT = [
  {
    station: "head",
    spot: "[data-spot=pooled]",
    text: ({ pool }) =>
      ({
        cls: "The classifier head reads the class token alone. Other tokens count by what it took from them.",
        mean: "The classifier head reads the mean of all tokens: yours is in it.",
        "cls+mean": "The classifier head reads the class token, and the mean of all patches.",
        attention: "A learned query looks at all tokens; the classifier head reads what it takes.",
        distilled: "The classifier head reads the first two tokens. Others count by what these took.",
      })[pool],
  },
  {
    station: "head",
    spot: "[data-spot=probabilities]",
    text: () => "One score for each class, then percentages: the answer. What others took from your token is in it.",
  },
];

function wayOf({ L }) {
  const others = Array.from({ length: L - 1 }, (_, i) => NEXT_BLOCK.map((stop) => ({ ...stop, layer: i + 1 })));
  return [...WAY_IN, ...FIRST_BLOCK.map((stop) => ({ ...stop, layer: 0 })), ...others.flat(), ...WAY_OUT];
}

const PAUSE = 6000; // milliseconds at a stop, while it plays

export function tourOf(page) {
  const { $, $$, sizes, data, config, state } = page;
  const isTried = Boolean(data.meaning);
  const isPlaced = config.position !== "none"; // a list is added to each token
  const facts = { ...sizes, pool: config.pool, canDraw: sizes.C === 1 && sizes.H <= 32, isTried, isPlaced };
  const story = STORY.filter(({ text }) => text(facts));
  const way = wayOf(sizes).filter(({ text }) => text(facts));
  /** @type {any[]} */
  let stops = story;
  let at = 0;
  let playing = 0; // a timer

  // How much of the screen the tour covers, and with the diagram, where that stays in view.
  function measure() {
    const [tour, model] = [$(".tour"), $(".model")];
    const isStuck = getComputedStyle(model).position === "sticky";
    const stuck = tour.offsetHeight + (isStuck ? model.offsetHeight + 8 : 0);
    $(".live").style.setProperty("--tour-height", `${tour.offsetHeight}px`);
    $(".live").style.setProperty("--stuck", `${stuck}px`);
  }

  // Scrolls to a stop: so that its station's heading is seen, too, if both have room.
  function reveal(element) {
    const heading = element.closest(".station")?.querySelector("h3");
    const room = window.innerHeight - parseFloat($(".live").style.getPropertyValue("--stuck")) - 40;
    const height = heading && element.getBoundingClientRect().bottom - heading.getBoundingClientRect().top;
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const behavior = isStill ? "auto" : "smooth";
    if (height && height < room) heading.scrollIntoView({ block: "start", behavior });
    else page.reveal(element);
  }

  function darken() {
    $$(".spot").forEach((element) => element.classList.remove("spot"));
    $$(".flying").forEach((copy) => copy.remove());
  }

  function follow(kind) {
    const isClass = state.token < sizes.prefix;
    if (kind === "class" && sizes.prefix) state.token = 0;
    if (kind === "patch" && isClass) state.token = page.middle;
  }

  const isLast = () => at === stops.length - 1;

  function stop(number) {
    const taken = number === 0 ? null : (takenCells($(".station:not(.hidden) .spot")) ?? takenPatch(page));
    at = number;
    darken();
    const { station, spot, layer, follow: kind, text } = stops[number];
    follow(kind);
    go(page, station, { layer });
    $(".sentence").textContent = text({ ...facts, layer });
    $(".count").textContent = `${number + 1} of ${stops.length}`;
    $('[data-do="back"]').disabled = number === 0;
    $('[data-do="next"]').textContent = isLast() ? "Start again" : "Next";
    $('[data-do="token"]').textContent = stops === way ? "The story" : "Follow one token";
    const here = $(`.station:not(.hidden) ${spot}`);
    const isOff = here && !here.checkVisibility(); // the part is off: its station says so
    const element = isOff ? $(".station:not(.hidden) .off:not(:empty)") : (here ?? $(spot));
    element.classList.add("spot");
    measure();
    if (stops === way) fly(page, taken ?? takenPatch(page), element);
    return element;
  }

  function pause() {
    clearInterval(playing);
    playing = 0;
    $('[data-do="play"]').textContent = "Play";
  }

  function play() {
    if (playing) return pause();
    const forward = () => {
      reveal(stop(isLast() ? 0 : at + 1));
      if (isLast()) pause();
    };
    playing = setInterval(forward, PAUSE);
    $('[data-do="play"]').textContent = "Pause";
    forward();
  }

  function leave() {
    pause();
    darken();
    $(".sentence").textContent = `You walk on your own.${isLast() ? "" : " Next goes on with the tour."}`;
  }

  new ResizeObserver(measure).observe($(".tour"));
  return {
    begin: () => stop(0),
    leave,
    actions: {
      play,
      token() {
        pause();
        stops = stops === way ? story : way;
        reveal(stop(0));
      },
      back() {
        pause();
        reveal(stop(at - 1));
      },
      next() {
        pause();
        reveal(stop(isLast() ? 0 : at + 1));
      },
    },
  };
}
