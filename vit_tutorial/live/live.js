// The live page: what is chosen, what is computed, and what is shown.

import { begin, make } from "../pages/page.js";
import { answerOf, drawAnswer, drawSizes } from "./answer.js";
import { cells, tokenMap } from "./cells.js";
import { catchingUp, computeNow, run } from "./compute.js";
import { contextOf } from "./context.js";
import { copyLink, restore } from "./link.js";
import { lens } from "./model.js";
import { COLOURS, drawingPad } from "./pad.js";
import { buildPicker, chooseToken, drawPicker, stopSwapping } from "./picker.js";
import { fitPhoto, readPhoto, rearrange } from "./pictures.js";
import { MAPS, SHOWS, STATIONS, TEXTS } from "./stations/index.js";
import { forgetTried } from "./stations/what_if.js";
import { tourOf } from "./tour.js";

const MOST_UNDONE = 200;

// What the stations show: a pass, and what of it is chosen.
function sceneOf(page) {
  const { now, of, data, config, classes, weights, sizes, state } = page;
  const { token, layer, head } = state;
  const off = new Set(of.changes.off);
  const colours = ["red", "green", "blue"];
  return {
    ...sizes,
    run: now,
    block: now.blocks[layer],
    one: now.blocks[layer].attention.heads[head],
    changes: of.changes,
    picture: rearrange(of.picture, data, of.changes),
    data,
    config,
    classes,
    weights,
    token,
    layer,
    head,
    patch: Math.max(token - sizes.prefix, 0),
    followed: state.row,
    follow(row) {
      if (row === state.row) return;
      state.row = row;
      page.draw();
    },
    tokenName: page.tokenName,
    channel: (c) => (sizes.C === 1 ? "" : `${sizes.C === 3 ? colours[c] : `channel ${c}`}, `),
    isBlockOn: (block) => !off.has(`blocks.${block}`),
    isOn: (part) => !off.has(part ? `blocks.${layer}.${part}` : `blocks.${layer}`), // of the chosen block
  };
}

// Fills the markup's [data-show], [data-map] and [data-text]: [element, what draws it] each.
function slotsOf(page) {
  const { $$, config } = page;
  $$(config.stem ? ".plain" : ".stem").forEach((element) => element.remove());
  const labelOf = (place) => place.dataset.label ?? place.parentElement.querySelector("h4").textContent.trim();
  const shows = $$("[data-show]").map((place) => {
    const view = cells(page, place, labelOf(place));
    return [place, (s) => view.show(SHOWS[place.dataset.show](s))];
  });
  const maps = $$("[data-map]").map((place) => {
    const view = tokenMap(page, place, labelOf(place));
    return [place, (s) => view.show(MAPS[place.dataset.map](s))];
  });
  const written = $$("[data-text]").filter((place) => TEXTS[place.dataset.text]);
  const texts = written.map((place) => [
    place,
    (s) => {
      place.textContent = TEXTS[place.dataset.text](s);
    },
  ]);
  return [...shows, ...maps, ...texts];
}

function start({ host, root, data, images }) {
  const page = contextOf({ host, root, data });
  const { $, $$, say, state, sizes, samples, config, past, white } = page;
  const { C, H, W } = sizes;
  let slots = [];

  // ------------------------------------------------------------------------------------------------- changing it

  page.draw = () => {
    drawAnswer(page);
    drawPicker(page);
    const isPatch = state.token >= sizes.prefix;
    $$(".of-patch").forEach((element) => element.classList.toggle("hidden", !isPatch));
    $$(".of-class").forEach((element) => element.classList.toggle("hidden", isPatch));
    const scene = sceneOf(page);
    for (const [place, show] of slots) if (place.closest(".station").dataset.station === state.station) show(scene);
    STATIONS[state.station].draw?.(page, scene);
  };
  page.catchUp = catchingUp(page, page.draw);
  page.chooseToken = (token) => chooseToken(page, token);
  page.reveal = (element) => {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    element.scrollIntoView({ block: "nearest", behavior: isStill ? "auto" : "smooth" });
  };

  function remember() {
    past.push({ picture: state.picture, sample: state.sample, changes: state.changes, ink: page.pad.ink() });
    if (past.length > MOST_UNDONE) past.shift();
  }

  // The picture or the model is another one: shows what is known at once, and the answer as soon as it is computed.
  async function follow() {
    forgetTried(page);
    drawPicker(page);
    STATIONS["what-if"].draw(page);
    await page.catchUp();
  }
  const sayAnswer = () => say(`It says ${answerOf(page, page.now)}`);

  page.change = async (changes, { canUndo = true } = {}) => {
    if (canUndo) remember();
    state.changes = { ...state.changes, ...changes };
    await follow();
    say(`${$(".list").textContent || "As trained"}. It says ${answerOf(page, page.now)}`);
  };

  async function choosePicture(picture, sample = -1) {
    if (picture !== state.picture) remember();
    Object.assign(state, { picture, sample });
    $(".message").textContent = "";
    page.pad.show(picture);
    await follow();
    sayAnswer();
  }

  async function undo() {
    const { ink, ...before } = past.pop();
    Object.assign(state, before);
    page.pad.show(ink);
    await follow();
    sayAnswer();
  }

  // ------------------------------------------------------------------------------------------------- the picture

  // What is said of a drawing whose pen was lifted.
  function adviceOn(wasSample) {
    if (C > 1) return "";
    if (page.pad.isEmpty()) return "The pad is empty. The model must name something even so.";
    if (wasSample) return "You drew on top of the picture that was there: Clear gives you an empty pad.";
    return page.pad.filled() < 0.75 ? "That is small. The digits it learned from fill the frame: press Fit." : "";
  }

  let isOnSample = false; // the line that is drawn
  page.pad = drawingPad($(".pad canvas"), config.shape, white, {
    begun() {
      isOnSample = state.sample >= 0;
      remember();
    },
    async drawn(picture, isFinal) {
      Object.assign(state, { picture, sample: -1, isDrawing: !isFinal });
      $(".message").textContent = isFinal ? adviceOn(isOnSample) : "";
      if (isFinal) isOnSample = false;
      await follow();
      if (isFinal) sayAnswer();
    },
    say,
  });

  async function takePhoto(file) {
    try {
      const picture = await readPhoto(file, data);
      choosePicture(picture.map((v) => Math.round(white * v) / white));
      const name = file.name || "Your picture";
      $(".message").textContent = `${name}, cut and made as small as the model takes it: ${W} × ${H} pixels.`;
    } catch (error) {
      $(".message").textContent = error.message;
    }
  }

  function takeFirst(files, otherwise) {
    if (files.length) takePhoto(files[0]);
    else $(".message").textContent = otherwise;
  }

  function buildPictures() {
    $(".pad canvas").style.aspectRatio = `${W} / ${H}`;
    buildPens();
    const buttons = images.map(({ src, alt }, i) => {
      const onclick = () => choosePicture(samples[i], i);
      return make("button", { type: "button", title: alt, onclick }, make("img", { src, alt }));
    });
    $(".samples").append(...buttons);
    const input = $("input[type=file]");
    input.onchange = () => {
      if (input.files.length) takePhoto(input.files[0]);
      input.value = "";
    };
    const section = $(".live");
    section.addEventListener("dragover", (event) => {
      event.preventDefault();
      section.classList.add("dropping");
    });
    section.addEventListener("dragleave", () => section.classList.remove("dropping"));
    section.addEventListener("drop", (event) => {
      event.preventDefault();
      section.classList.remove("dropping");
      takeFirst(event.dataTransfer.files, "That was not a file: drop a picture from your computer.");
    });
    section.tabIndex = -1; // so that what is pasted reaches it after a click anywhere
    section.addEventListener("paste", (event) => {
      takeFirst(event.clipboardData.files, "What you pasted is not a picture: copy a picture first.");
    });
  }

  function buildPens() {
    if (C === 1) {
      const pens = { Draw: "white", Erase: "black" };
      const texts = Object.keys(pens);
      $(".colours").classList.add("modes");
      radios($(".colours"), "pen", texts.map((text) => make("span", { textContent: text, title: text })), (i) => {
        page.pad.choose(pens[texts[i]]);
      }); // prettier-ignore
      return;
    }
    const names = Object.keys(COLOURS);
    const swatches = names.map((name) => {
      const swatch = make("span", { title: name }, make("span", { className: "spoken", textContent: name }));
      swatch.style.background = `rgb(${COLOURS[name].map((v) => Math.round(255 * v)).join(" ")})`;
      return swatch;
    });
    $(".colours").classList.add("swatches");
    radios($(".colours"), "pen", swatches, (i) => page.pad.choose(names[i]));
    $$('[data-do="fit"], [data-do="clear"]').forEach((button) => button.remove());
  }

  // ------------------------------------------------------------------------------------------------- controls

  function go(name) {
    if (name !== state.station) stopSwapping(page);
    state.station = name;
    const { title, hasLayers, hasHeads } = STATIONS[name];
    for (const tab of $(".stations").children) {
      const isHere = tab.dataset.to === name;
      tab.ariaSelected = String(isHere);
      tab.tabIndex = isHere ? 0 : -1;
    }
    $(".panel").setAttribute("aria-label", title);
    for (const part of $$(".station")) part.classList.toggle("hidden", part.dataset.station !== name);
    $(".layers").classList.toggle("hidden", !hasLayers);
    $(".heads").classList.toggle("hidden", !hasHeads);
    page.draw();
  }

  function walk(name) {
    tour.leave();
    go(name);
  }

  // The first is chosen.
  function radios(place, name, contents, choose) {
    const labels = contents.map((content, i) => {
      const input = make("input", { type: "radio", name, value: i, checked: i === 0 });
      input.onchange = () => choose(i);
      return make("label", {}, input, content);
    });
    place.append(...labels);
  }

  function buildTabs() {
    const names = Object.keys(STATIONS);
    for (const name of names) {
      const tab = make("button", { type: "button", textContent: STATIONS[name].title, onclick: () => walk(name) });
      tab.setAttribute("role", "tab");
      tab.dataset.to = name;
      $(".stations").append(tab);
    }
    $(".stations").addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const next = (names.indexOf(state.station) + by + names.length) % names.length;
      walk(names[next]);
      $(".stations").children[next].focus();
    });
  }

  // The choice of a block, and of a head, each with a small map of where the token looks.
  function buildDepth() {
    const blocks = Array.from({ length: sizes.L }, (_, i) => make("span", { textContent: i }));
    const heads = Array.from({ length: sizes.h }, (_, i) => {
      const map = make("canvas");
      map.style.aspectRatio = `${sizes.columns} / ${sizes.rows}`;
      return make("span", {}, map, String(i));
    });
    for (const [name, title, contents] of [
      ["layer", "Block", blocks],
      ["head", "Head", heads],
    ]) {
      $(`.${name}s`).append(make("span", { className: "when", textContent: title }));
      radios($(`.${name}s`), name, contents, (i) => {
        state[name] = i;
        page.draw();
      });
    }
  }

  const clear = () => {
    remember();
    page.pad.clear();
  };
  const fit = () => {
    remember();
    page.pad.fit();
  };
  const tour = tourOf(page, go);
  const actions = {
    clear,
    fit,
    undo,
    open: () => $("input[type=file]").click(),
    link: () => copyLink(page),
    ...tour.actions,
    ...STATIONS["what-if"].actions(page),
  };

  drawSizes(page);
  slots = slotsOf(page);
  for (const station of Object.values(STATIONS)) station.build?.(page);
  buildTabs();
  buildDepth();
  buildPicker(page);
  buildPictures();
  for (const button of $$("[data-do]")) button.onclick = () => actions[button.dataset.do]();

  page.pad.show(state.picture);
  const isRestored = restore(page);
  const { station, token } = state;
  computeNow(page);
  tour.begin();
  if (isRestored) {
    state.token = token;
    $$('[name="layer"]')[state.layer].checked = true;
    $$('[name="head"]')[state.head].checked = true;
    walk(station);
  }
  // In the browser's console: $0.live.run(picture) gives every number of a pass, as the package names them.
  host.live = {
    config,
    samples,
    state,
    run: (picture, changes) => run(page, picture, changes),
    lens: (one) => lens(one, page.weights, config),
    fitPhoto: (rgba, size) => fitPhoto(rgba, size, data),
  };
}

begin("live", start);
