// Two guided tours, the story and one token's way: at each stop a station, what lights up there, the followed token
// ("patch" or "class"; none: the reader's), and a sentence. A stop without a sentence, for this model, is left out.
// What it asks for, asks, is in sight beside its sentence, or a button there, offers; on a phone, nothing else.

import { make } from "../pages/page.js";
import { AS_TRAINED, isChanged } from "./changes.js";
import { go } from "./controls.js";
import { fly, takenCells, takenPatch } from "./flight.js";
import { choosePicture } from "./input.js";
import { paint } from "./pictures.js";
import { readBy, readsClassToken } from "./stations/head.js";

const STORY = [
  {
    station: "patches",
    spot: ".pad canvas",
    follow: "patch",
    text: ({ canDraw }) =>
      canDraw &&
      "Press Clear and draw a digit: the answer follows your pen. Now draw a star: it names a digit even so.",
  },
  {
    station: "patches",
    spot: ".pad canvas",
    offers: ["another"],
    follow: "patch",
    text: ({ canDraw, K }) =>
      !canDraw && `Take another picture, or drop your own. Whatever it shows, the model picks one of ${K} names.`,
  },
  {
    station: "patches",
    spot: ".picker canvas",
    asks: ["[data-spot=pixels]"],
    follow: "patch",
    text: ({ N, H, W }) =>
      `The model gets the picture, ${H} × ${W} pixels, in ${N} pieces, called patches. ` +
      "Click one: could you name the picture from it?",
  },
  {
    station: "embedding",
    spot: "[data-spot=token]",
    asks: [".picker canvas"],
    follow: "patch",
    text: ({ D, canDraw }) =>
      `A table learned in training, E, turns the patch into ${D} numbers: a token. ` +
      (canDraw ? "Click two black patches: do their tokens differ?" : "Click others: how much do their tokens differ?"),
  },
  {
    station: "embedding",
    spot: '[data-meaning="row"]',
    asks: ["[data-spot=token]"],
    follow: "patch",
    text: ({ isTried, point }) =>
      isTried &&
      "Each number is the patch’s pixels times numbers of E, added up, plus an offset. " +
        `The framed one is largest for these six: what do they share? ${point} other numbers.`,
  },
  {
    station: "positions",
    spot: "[data-spot=position]",
    asks: [".picker canvas", "[data-spot=z0]"],
    follow: "patch",
    text: ({ isPlaced, canDraw }) =>
      isPlaced &&
      "The token doesn’t say where its patch was. So a list for its place is added. " +
        (canDraw
          ? "Click both black patches again: do they differ now?"
          : "Click other patches: each place has its own."),
  },
  {
    station: "positions",
    spot: "[data-spot=z0]",
    asks: [".picker canvas"],
    follow: "class",
    offers: ["another"],
    text: ({ hasClass, isRead }) =>
      hasClass &&
      `One more token joins: the class token, of no patch. ${isRead ? "It will collect the answer. " : ""}` +
        "Take another picture: do its numbers change here?",
  },
  {
    station: "attention",
    spot: "[data-spot=weights]",
    asks: [".picker canvas"],
    follow: "class",
    text: () =>
      "In attention, tokens exchange what they know. The lighter a patch on the map, " +
      "the more the chosen token takes from it. Click another: where does that one look?",
  },
  {
    station: "attention",
    spot: ".heads",
    asks: ['[data-meaning="head"]'],
    follow: "class",
    text: ({ h }) =>
      h > 1 &&
      `Each token looks in ${h} ways at once: ${h} heads. You saw one of them. ` +
        "Choose another: what does that one look for?",
  },
  {
    station: "mlp",
    spot: "[data-spot=hidden]",
    asks: ['[data-meaning="unit"]'],
    text: ({ M, point }) =>
      `Then the MLP, a small network: its ${M} hidden units look at each token alone. ` +
      `${point} one: what switches it on?`,
  },
  {
    station: "layers",
    spot: "[data-spot=lens]",
    offers: ["another"],
    text: ({ L }) =>
      `Attention and MLP are a block. ${L > 1 ? `Here ${L} follow each other, each with its own numbers. ` : ""}` +
      "Take other pictures: when does the answer settle?",
  },
  {
    station: "head",
    spot: "[data-spot=probabilities]",
    offers: ["another", "clear"],
    text: ({ read }) =>
      `The classifier reads ${read}. Each class, a possible answer, gets a share of 100 %. ` +
      "Press Clear: how sure is it of nothing? Then take another picture.",
  },
  {
    station: "what-if",
    spot: ".map",
    offers: ["reset", "shuffle"],
    text: () =>
      "Now break it: click parts of the diagram to cut them. Does the answer survive? " +
      "Then press Reset, then Shuffle all: patches change places. What is it now?",
  },
  {
    station: "what-if",
    spot: ".map",
    text: ({ isRead }) =>
      "Patches become tokens. In attention, they take from each other, each head in its way. " +
      `In the MLP, each is alone. Both make a block. ${isRead ? "The class token collects the answer." : ""}`,
  },
];
// One token's way: in at the patch, slowly through the first block, then block by block to the answer.
const WAY_IN = [
  {
    station: "patches",
    spot: "[data-spot=pixels]",
    follow: "patch",
    text: () => "You follow this patch. Click another, whenever you like.",
  },
  {
    station: "patches",
    spot: "[data-spot=flat]",
    asks: ["[data-spot=pixels]"],
    follow: "patch",
    text: ({ length, point }) =>
      `Its pixels become one list of ${length} numbers. ${point} one to see which pixel it was.`,
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
    text: () => "Where its q fits a k, it looks. Lines on the patches: where, and how much.",
  },
  {
    station: "attention",
    spot: "[data-spot=sums]",
    text: () => "It takes from each token’s v, most where it looks most.",
  },
  {
    station: "attention",
    spot: "[data-spot=middle]",
    text: ({ h }) => `${h > 1 ? `${h} heads look in ${h} ways: what they` : "What it"} took goes into the token.`,
  },
  {
    station: "mlp",
    spot: "[data-spot=hidden]",
    text: ({ M }) => `Then the MLP: ${M} hidden units look for something in this token alone.`,
  },
  {
    station: "mlp",
    spot: "[data-spot=out]",
    text: () => "What they found goes into it, too. That was one block.",
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
      `Block ${layer} has done its part. ` +
      (layer === L - 1 ? "That was the last block." : `The token goes on to block ${layer + 1}.`),
  },
];
const WAY_OUT = [
  {
    station: "head",
    spot: "[data-spot=pooled]",
    text: ({ read }) => `The classifier reads ${read}.`,
  },
  {
    station: "head",
    spot: "[data-spot=probabilities]",
    text: () => "One score for each class, then percentages: the answer.",
  },
];

function wayOf({ L }) {
  const others = Array.from({ length: L - 1 }, (_, i) => NEXT_BLOCK.map((stop) => ({ ...stop, layer: i + 1 })));
  return [...WAY_IN, ...FIRST_BLOCK.map((stop) => ({ ...stop, layer: 0 })), ...others.flat(), ...WAY_OUT];
}

const NARROW = 640; // pixels of the page, on a phone
const PAUSES = { "1×": 6000, "2×": 3000, "½×": 12000 }; // milliseconds at a stop, while it plays

const nextSample = ({ state, samples }) => (state.sample + 1) % samples.length;

// The picture that comes next, and whether the reader's own, once replaced or cleared, is to be had back.
export function drawOffers(page) {
  const { $, config, samples, state, mine, pad } = page;
  paint($('[data-do="another"] canvas'), samples[nextSample(page)], config.shape);
  $('[data-do="mine"]').classList.toggle("hidden", !mine || (state.sample < 0 && !pad.isEmpty()));
}

export function tourOf(page) {
  const { $, $$, sizes, data, config, state } = page;
  const facts = {
    ...sizes,
    K: page.classes.length,
    canDraw: page.isOfDigits && sizes.H <= 32,
    isTried: Boolean(data.meaning),
    isPlaced: config.position !== "none", // a list is added to each token
    hasClass: config.class_token,
    read: readBy(config),
    isRead: readsClassToken(config),
    point: matchMedia("(pointer: coarse)").matches ? "Tap" : "Point at",
  };
  const story = STORY.filter(({ text }) => text(facts));
  const way = wayOf(sizes).filter(({ text }) => text(facts));
  /** @type {any[]} */
  let stops = story;
  let at = 0;
  let isAway = false; // the reader walks on their own
  let patch = page.middle; // that the reader followed last
  let playing = 0; // a timer
  let [speed] = Object.keys(PAUSES);

  // How much of the screen the tour covers, and with the diagram, where that stays in view.
  function measure() {
    const [tour, model, choose] = [$(".tour"), $(".model"), $(".choose")];
    const isStuck = getComputedStyle(model).position === "sticky";
    const stuck = tour.offsetHeight + (isStuck ? model.offsetHeight + 8 : 0);
    $(".live").style.setProperty("--tour-height", `${tour.offsetHeight}px`);
    $(".live").style.setProperty("--stuck", `${stuck}px`);
    const fits = stuck + choose.offsetHeight + 12 <= window.innerHeight; // else its end would be lost
    choose.classList.toggle("stays", isStuck && fits);
  }

  // Scrolls so that all that a stop asks for is in sight, and its station's heading, too, if there is room. On a phone,
  // or where it doesn't fit, all else of the station is hidden.
  function reveal(asked) {
    measure();
    const inPanel = asked
      .filter((element) => element.checkVisibility() && element.closest(".panel:not(:has(.stays)), .station"))
      .map((element) => element.closest(".choose") ?? element);
    const heading = $(".station:not(.hidden) h3");
    const side = (name) => (element) => element.getBoundingClientRect()[name];
    const first = () => inPanel.reduce((a, b) => (side("top")(a) <= side("top")(b) ? a : b));
    const room = window.innerHeight - parseFloat($(".live").style.getPropertyValue("--stuck")) - 40;
    const isAbove = (from) => from && side("top")(from) <= side("top")(first());
    const fits = (from) => isAbove(from) && Math.max(...inPanel.map(side("bottom"))) - side("top")(from) < room;
    if (!inPanel.length) return page.reveal(asked[0]);
    $(".live").classList.toggle("focused", $(".live").clientWidth <= NARROW || !fits(first()));
    page.draw(); // numbers that have no room in their cells any more
    page.reveal([heading, $(".station:not(.hidden) .act:has(.asked)")].find(fits) ?? first(), "start");
  }

  function darken() {
    for (const name of ["spot", "asked"]) $$(`.${name}`).forEach((element) => element.classList.remove(name));
    $(".live").classList.remove("focused");
    $$(".flying").forEach((copy) => copy.remove());
  }

  // Buttons beside the sentence: one for another picture, and those that the station has elsewhere.
  function offer(names) {
    $('[data-do="another"]').classList.toggle("hidden", !names.includes("another") || page.samples.length < 2);
    const twins = names.map((name) => $(`:is(.pad, .panel, .answer) [data-do="${name}"]`)).filter(Boolean);
    const copies = twins.map(({ textContent, onclick }) => make("button", { type: "button", textContent, onclick }));
    $(".offers").replaceChildren(...copies);
  }

  function follow(kind) {
    if (state.token >= sizes.prefix) patch = state.token;
    if (kind === "class" && sizes.prefix) state.token = 0;
    if (kind === "patch") state.token = patch;
  }

  const isLast = () => at === stops.length - 1;

  function stop(number, isReset = false) {
    at = number;
    isAway = false;
    darken();
    $(".left").scrollTop = 0;
    const { station, spot, layer, follow: kind, text, asks = [], offers = [] } = stops[number];
    follow(kind);
    offer(offers);
    go(page, station, { layer });
    $(".count").textContent = `${number + 1} of ${stops.length}`;
    $('[data-do="next"]').textContent = isLast() ? "Start again" : "Next";
    [$('[data-do="back"]').disabled, $('[data-do="play"]').disabled] = [number === 0, isLast()];
    $(".tour").classList.toggle("way", stops === way);
    $('[data-do="play"]').classList.toggle("hidden", stops === story); // which gives tasks
    $('[data-do="token"]').textContent = stops === way ? "The story" : "Follow one token";
    const [here, off, lead] = [spot, ".off:not(:empty)", ".lead"].map((part) => $(`.station:not(.hidden) ${part}`));
    const isOff = here ? !here.checkVisibility() : Boolean(off); // the part is off: its station says so
    const element = isOff ? (off ?? lead) : (here ?? $(spot));
    element.classList.add("spot");
    const asked = [element, ...[...(stops === way ? [".picker canvas"] : []), ...asks].map($)];
    asked.forEach((one) => one.classList.add("asked"));
    const isMoved = station === "positions" && state.changes.position !== "learned";
    const isOther = isMoved || (stops === way && number === 0 && isChanged(state.changes));
    const changed = isOff ? "This part is off" : isOther ? "You made changes" : "";
    const sentence = changed ? `${changed}. Reset brings all back.` : text({ ...facts, layer });
    $(".sentence").textContent = isReset ? `All that you changed is reset. ${sentence}` : sentence;
    return asked;
  }

  // The story is about the model as it was trained, until it is to be broken.
  async function arrive(number) {
    const isReset = stops === story && stops[number].station !== "what-if" && isChanged(state.changes);
    if (isReset) await page.change(AS_TRAINED);
    const taken = number === 0 ? null : takenCells($(".station:not(.hidden) .spot"));
    const asked = stop(number, isReset);
    reveal(asked);
    if (stops === way) fly(page, taken ?? takenPatch(page), asked[0]);
  }

  // Goes on by itself after each pause, in milliseconds; 0: no longer.
  function playAt(milliseconds) {
    clearInterval(playing);
    playing = milliseconds && setInterval(forward, milliseconds);
    $('[data-do="play"]').textContent = playing ? "Pause" : "Play";
    $('[data-do="speed"]').textContent = speed;
    $('[data-do="speed"]').classList.toggle("hidden", !playing);
  }

  function forward() {
    const next = isLast() ? 0 : at + 1;
    arrive(isAway ? at : next).then(() => isLast() && playAt(0));
  }

  function leave() {
    playAt(0);
    darken();
    offer([]);
    isAway = true;
    $('[data-do="next"]').textContent = "Return";
    $(".sentence").textContent = "You walk on your own. Return leads to the stop of the tour that you left.";
    measure();
  }

  $(".offers").onclick = () => page.reveal($(".spot .picture") ?? $(".spot")); // on a phone it may be above
  $('[data-do="mine"]').textContent = `My ${sizes.C === 1 ? "drawing" : "picture"}`;
  for (const part of [".tour", ".choose"]) new ResizeObserver(measure).observe($(part));
  return {
    begin: () => stop(0),
    leave,
    actions: {
      play() {
        if (playing) return playAt(0);
        playAt(PAUSES[speed]);
        forward();
      },
      speed() {
        const speeds = Object.keys(PAUSES);
        speed = speeds[(speeds.indexOf(speed) + 1) % speeds.length];
        playAt(PAUSES[speed]);
      },
      another() {
        const next = nextSample(page);
        choosePicture(page, page.samples[next], { sample: next });
      },
      mine: () => choosePicture(page, page.mine.picture, page.mine),
      token() {
        playAt(0);
        stops = stops === way ? story : way;
        arrive(0);
      },
      back() {
        playAt(0);
        arrive(at - 1);
      },
      next() {
        playAt(0);
        forward();
      },
    },
  };
}
