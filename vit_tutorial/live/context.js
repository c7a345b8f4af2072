// What every file of the page works on: the model, what is chosen, and what is shown.

import { AS_TRAINED } from "./changes.js";
import { bytes, pixelsOf } from "./dom.js";
import { unpack, unpackStates } from "./model.js";
import { lightUp } from "./sources.js";
import { storyOf } from "./story.js";

const GREY = Uint32Array.from({ length: 256 }, (_, level) => ((255 << 24) | (0x010101 * level)) >>> 0);

// The sizes, by the letters that the lessons have for them.
function sizesOf(config) {
  const [C, H, W] = config.shape;
  const [rows, columns] = config.grid;
  const { dim: D, depth: L, num_heads: h, mlp_dim: M, tokens: T, patches: N, prefix } = config;
  return { C, H, W, rows, columns, D, L, h, M, T, N, prefix, d: D / h, length: (C * H * W) / N };
}

function samplesOf({ values, count, white }) {
  const levels = bytes(values);
  const size = levels.length / count;
  return Array.from({ length: count }, (_, i) =>
    Float32Array.from(levels.subarray(i * size, (i + 1) * size), (v) => v / white),
  );
}

export function contextOf({ host, root, data }) {
  const sizes = sizesOf(data.config);
  const { prefix, rows, columns } = sizes;
  const $ = (selector) => root.querySelector(selector);
  const samples = samplesOf(data.samples);
  const at = (token) => [Math.floor((token - prefix) / columns), (token - prefix) % columns]; // row, column
  const middle = prefix + Math.floor(rows / 2) * columns + Math.floor(columns / 2); // a patch
  const page = {
    host,
    data,
    config: data.config,
    classes: data.classes,
    isOfDigits: sizes.C === 1 && data.classes.every((name) => /^\d$/.test(name)),
    weights: unpack(data.weights),
    states: unpackStates(data.weights, data.states), // of the training, the first one noise
    white: data.samples.white,
    pixels: { signed: pixelsOf(data.signed), heat: pixelsOf(data.heat), grey: GREY },
    sizes,
    samples,
    middle,
    hasOwnAddress: host.parentElement?.matches("main[data-own-page]") ?? false,
    $,
    $$: (selector) => [...root.querySelectorAll(selector)],
    say: (text) => {
      $(".live-region").textContent = text;
    },
    at,
    tokenName: (token) => (token < prefix ? "class token" : `patch ${token - prefix}`),
    theName: (token) => `${token < prefix ? "the " : ""}${page.tokenName(token)}`,
    placeOf: (token) => (token < prefix ? "before the patches" : `row ${at(token)[0]}, column ${at(token)[1]}`),
    colourOf: (name) => getComputedStyle(host).getPropertyValue(name).trim(),
    blue: getComputedStyle(host).getPropertyValue("--query").trim(),
    scratch: new OffscreenCanvas(sizes.W, sizes.H), // the picture, to cut patches from
    views: [], // what shows numbers: {station, name, light}
    past: [], // pictures and changes to go back to
    state: {
      picture: samples[0],
      sample: 0, // its number; -1: it is none
      message: "", // what is said of it
      changes: { ...AS_TRAINED },
      stop: 0, // of the tour
      isAway: false, // the reader left it for another part
      isWhole: false, // all of the diagram is shown, and not only what the story has told
      station: "patches",
      token: middle,
      previous: null, // the token that was chosen before
      guess: null, // what the reader guesses of attention: a patch, or the number of a choice
      hasGuessed: false,
      layer: 0,
      head: 0,
      row: 0, // of E, whose sum is shown
      unit: null, // the hidden unit that was pointed at; null: the one that the token excites most
      isDrawing: false,
      isFine: false, // every step of a block is shown
      isCutting: false, // a click on a part of the map cuts it, in place of opening it
    },
    // A pass, another of the model as it was trained, and the picture and changes of both.
    shown: { now: null, before: null, of: {} },
    map: {}, // the diagram: how it is laid out, and its elements
    meaning: {}, // the sheet of pictures that parts answer to, and where in it they are
    watch: {}, // attention as it happens: the beat, whether it moves on, and the scene that it shows
    pad: null, // the drawing pad, of input.js

    // What the page does, which other files give it:
    draw: null, // shows the state (live.js)
    catchUp: null, // computes what the state asks for, and draws it (live.js)
    chooseToken: null, // follows another token (live.js)
    reveal: null, // scrolls an element into sight (live.js)
    remember: null, // keeps picture and changes, to be undone (live.js)
    follow: null, // shows another picture or model, at once what is known of it (live.js)
    sayAnswer: null, // to a screen reader (live.js)
    change: null, // changes the model or its patches (live.js)
    undo: null, // live.js
    walk: null, // leaves the tour for a station (live.js)
    cut: null, // switches a part off, or on again (map.js)
    lightUp: (place, lights) => lightUp(page, place, lights),
    stops: [], // of the tour
  };
  page.stops = storyOf(page);
  return page;
}
