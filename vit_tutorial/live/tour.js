// The guided tour: at each stop a station, what lights up there, which token is followed, and a sentence.
// A stop without a sentence, for this model, is left out.

import { go } from "./controls.js";

const TOUR = [
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
    text: ({ D }) => `A learned table of numbers, E, turns the patch into ${D} numbers: a token.`,
  },
  {
    station: "embedding",
    spot: '[data-meaning="row"]',
    follow: "patch",
    text: ({ isTried }) => isTried && "Each number looks for a pattern. These patches have most of it. Try other rows.",
  },
  {
    station: "positions",
    spot: "[data-spot=position]",
    follow: "patch",
    text: () => "The token doesn’t say where its patch was. So a list for its place is added.",
  },
  {
    station: "positions",
    spot: ".special",
    follow: "class",
    text: ({ prefix }) => prefix && "One more token joins: the class token. It will collect the answer, so follow it.",
  },
  {
    station: "attention",
    spot: "[data-spot=weights]",
    follow: "class",
    text: ({ prefix }) =>
      `The ${prefix ? "class token" : "token"} looks at the patches. It takes most from the brightest.`,
  },
  {
    station: "attention",
    spot: '[data-meaning="head"]',
    follow: "class",
    text: ({ h, isTried }) =>
      isTried && `${h} heads look side by side, each for something else. Choose another and compare.`,
  },
  {
    station: "mlp",
    spot: "[data-spot=hidden]",
    follow: "class",
    text: ({ M }) => `Now the token works alone. Point at one of its ${M} units: what excites it?`,
  },
  {
    station: "layers",
    spot: "[data-spot=lens]",
    follow: "class",
    text: ({ L }) => `${L} blocks do this, one after the other. When does the right answer appear?`,
  },
  {
    station: "head",
    spot: "[data-spot=probabilities]",
    follow: "class",
    text: ({ prefix }) =>
      `The head reads ${prefix ? "the class token" : "the mean of all tokens"} and gives each class a percentage.`,
  },
  {
    station: "what-if",
    spot: ".map",
    follow: "patch",
    text: () => "Now break it: click parts of the model to cut them. Does the answer survive?",
  },
];
const PAUSE = 6000; // milliseconds at a stop, while it plays

export function tourOf(page) {
  const { $, $$, sizes, data, state } = page;
  const facts = { ...sizes, canDraw: sizes.C === 1 && sizes.H <= 32, isTried: Boolean(data.meaning) };
  const stops = TOUR.filter(({ text }) => text(facts));
  const last = stops.length - 1;
  let at = 0;
  let playing = 0; // a timer

  const measure = () => $(".live").style.setProperty("--tour-height", `${$(".tour").offsetHeight}px`); // it covers that
  const darken = () => $$(".spot").forEach((element) => element.classList.remove("spot"));

  function follow(kind) {
    const isClass = state.token < sizes.prefix;
    if (kind === "class" && sizes.prefix) state.token = 0;
    if (kind === "patch" && isClass) state.token = page.middle;
  }

  function stop(number) {
    at = number;
    darken();
    const { station, spot, follow: kind, text } = stops[number];
    follow(kind);
    go(page, station);
    $(".sentence").textContent = text(facts);
    $(".count").textContent = `${number + 1} of ${stops.length}`;
    $('[data-do="back"]').disabled = number === 0;
    $('[data-do="next"]').textContent = number === last ? "Start again" : "Next";
    const here = $(`.station:not(.hidden) ${spot}`);
    const isOff = here && !here.checkVisibility(); // the part is off: its station says so
    const element = isOff ? $(".station:not(.hidden) .off:not(:empty)") : (here ?? $(spot));
    element.classList.add("spot");
    measure();
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
      page.reveal(stop(at === last ? 0 : at + 1));
      if (at === last) pause();
    };
    playing = setInterval(forward, PAUSE);
    $('[data-do="play"]').textContent = "Pause";
    forward();
  }

  function leave() {
    pause();
    darken();
    $(".sentence").textContent = `You walk on your own.${at < last ? " Next goes on with the tour." : ""}`;
  }

  new ResizeObserver(measure).observe($(".tour"));
  return {
    begin: () => stop(0),
    leave,
    actions: {
      play,
      back() {
        pause();
        page.reveal(stop(at - 1));
      },
      next() {
        pause();
        page.reveal(stop(at === last ? 0 : at + 1));
      },
    },
  };
}
