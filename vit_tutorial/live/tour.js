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
        ? "Press Clear and draw a digit here, or choose one below: the model’s answer follows while you draw."
        : "Choose a picture below, or drop one of your own: the model’s answer stands beside it. You may paint on it.",
  },
  {
    station: "patches",
    spot: ".picker canvas",
    follow: "patch",
    text({ N, stem }) {
      const how = stem ? "The picture is cut into" : "The model never sees the whole picture: it sees";
      return `${how} ${N} small patches. Click one.`;
    },
  },
  {
    station: "patches",
    spot: "[data-spot=flat]",
    follow: "patch",
    text({ length, C }) {
      return `A patch is just ${length} numbers in a row, one for each pixel${C > 1 ? " and colour" : ""}.`;
    },
  },
  {
    station: "embedding",
    spot: "[data-spot=token]",
    follow: "patch",
    text({ D, stem }) {
      const filters =
        "This model first looks at the picture through small filters. A learned matrix turns what they find in a patch";
      const how = stem ? filters : "A learned matrix turns every patch";
      return `${how} into ${D} numbers. This list is called a token: it is what the model works on from here.`;
    },
  },
  {
    station: "positions",
    spot: "[data-spot=position]",
    follow: "patch",
    text: () => "The list doesn’t say where the patch was, so a learned list for its place is added.",
  },
  {
    station: "positions",
    spot: ".special",
    follow: "class",
    text: ({ prefix }) =>
      prefix &&
      "One more token comes first, the class token. It belongs to no patch: it will collect the answer, so from here " +
        "we follow it.",
  },
  {
    station: "attention",
    spot: "[data-spot=qkv]",
    follow: "class",
    text: () =>
      "Now tokens talk to each other. From every token come three lists: a query (what it looks for), a key (what it " +
      "has) and a value (what it would tell).",
  },
  {
    station: "attention",
    spot: "[data-spot=weights]",
    follow: "class",
    text: ({ prefix }) =>
      "Where the query fits a key, the score is high. Softmax makes shares of 100 % of the scores: this is where the " +
      `${prefix ? "class " : ""}token looks.`,
  },
  {
    station: "attention",
    spot: "[data-spot=sums]",
    follow: "class",
    text: ({ h }) =>
      `It takes over the values of what it looks at, in these shares. ${h} heads do this side by side, each in its ` +
      "own way: choose another one under “Head”.",
  },
  {
    station: "mlp",
    spot: "[data-spot=hidden]",
    follow: "class",
    text: ({ M }) =>
      `Then every token works alone: ${M} hidden units, each switched on by something it has learned to find.`,
  },
  {
    station: "layers",
    spot: "[data-spot=lens]",
    follow: "class",
    text: ({ L }) =>
      `Attention and MLP make a block, and there are ${L}. Here is what the answer would be after each of them.`,
  },
  {
    station: "head",
    spot: "[data-spot=probabilities]",
    follow: "class",
    text: ({ prefix }) =>
      "Last comes the model’s own head, which has only its name in common with the heads of attention: it turns " +
      `${prefix ? "the class token" : "the mean of all tokens"} into one score for each class, and softmax turns the ` +
      "scores into probabilities.",
  },
  {
    station: "what-if",
    spot: ".map",
    follow: "patch",
    text: () =>
      "Is all of this needed? Switch a part off, shuffle the patches, take the positions away, and watch the answer.",
  },
  {
    station: "what-if",
    spot: "[data-spot=matters]",
    follow: "patch",
    text: () => "Which head matters for this picture? Let the page try each of them. After that, walk where you like.",
  },
];

export function tourOf(page) {
  const { $, $$, sizes, config, state } = page;
  const facts = { ...sizes, stem: config.stem, canDraw: sizes.C === 1 && sizes.H <= 32 };
  const stops = TOUR.filter(({ text }) => text(facts));
  const last = stops.length - 1;
  let at = 0;

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

  function leave() {
    darken();
    $(".sentence").textContent = `You walk on your own.${at < last ? " Next goes on with the tour." : ""}`;
  }

  new ResizeObserver(measure).observe($(".tour"));
  return {
    begin: () => stop(0),
    leave,
    actions: {
      back: () => page.reveal(stop(at - 1)),
      next: () => page.reveal(stop(at === last ? 0 : at + 1)),
    },
  };
}
