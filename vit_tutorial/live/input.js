// The picture that the model is given: drawn, chosen, opened, dropped or pasted.

import { make } from "../pages/page.js";
import { percent } from "./cells.js";
import { isArranged } from "./changes.js";
import { radios } from "./controls.js";
import { COLOURS, drawingPad } from "./pad.js";
import { readPhoto, rearrange } from "./pictures.js";

const SURE = 0.7;

// What was done to a drawing before the model saw it.
function fitted(frame, isOfDigits) {
  if (!frame) return "";
  const larger = frame.scale < 1 ? `${(1 / frame.scale).toFixed(1)} times as large` : "";
  const moved = frame.away >= 0.75 ? "in the middle" : "";
  const others = isOfDigits ? "digits" : "pictures";
  return `The model sees it ${[larger, moved].filter(Boolean).join(" and ")}, like the ${others} it learned from.`;
}

// What is said of a drawing whose pen was lifted.
function adviceOn({ pad, sizes, isOfDigits }, wasSample) {
  if (pad.isEmpty()) return "The pad is empty. The model must name something even so.";
  if (pad.isFull()) return "The pad is full. Clear gives you an empty one: draw thin lines on it.";
  if (sizes.C > 1) return "";
  if (wasSample) return "You drew on top of the picture that was there: Clear gives you an empty pad.";
  return fitted(pad.frame(), isOfDigits);
}

// Says something of the picture, which comes back with it.
function tell({ $, state }, text) {
  state.message = text;
  $(".message").textContent = text;
}

export function buildPad(page) {
  const { $, state, config, white, say } = page;
  let isOnSample = false; // the line that is drawn
  $(".pad canvas").style.aspectRatio = `${page.sizes.W} / ${page.sizes.H}`;
  page.pad = drawingPad($(".pad canvas"), config.shape, white, {
    begun() {
      isOnSample = state.sample >= 0;
      page.remember();
    },
    async drawn(picture, isFinal) {
      Object.assign(state, { picture, sample: -1, isDrawing: !isFinal });
      tell(page, isFinal ? adviceOn(page, isOnSample) : "");
      if (isFinal) isOnSample = false;
      await page.follow();
      if (isFinal) page.sayAnswer();
    },
    arranged: () => (isArranged(state.changes) ? rearrange(state.picture, page.data, state.changes) : null),
    say,
  });
}

export async function choosePicture(page, picture, { sample = -1, ink = picture, message = "" } = {}) {
  const { state, pad } = page;
  if (picture !== state.picture) page.remember();
  Object.assign(state, { picture, sample });
  tell(page, message);
  pad.show(ink);
  await page.follow();
  page.sayAnswer();
}

// A photographed digit is taken for another more often where the answer has a small share.
function doubtOf({ isOfDigits, now }) {
  const share = Math.max(...now.probabilities);
  if (!isOfDigits || share >= SURE) return "";
  return ` With ${percent(share)} the model isn’t sure: try a thicker pen, or a plain ground.`;
}

async function takePhoto(page, file) {
  const { $, data, white } = page;
  try {
    $(".message").textContent = `Reading ${file.name || "your picture"}: a large one takes some seconds.`;
    const { picture, done } = await readPhoto(file, data);
    const taken = picture.map((v) => Math.round(white * v) / white);
    await choosePicture(page, taken, { message: done });
    if (page.state.picture === taken) tell(page, done + doubtOf(page));
  } catch (error) {
    $(".message").textContent = error.message;
  }
}

function takeFirst(page, files, otherwise) {
  if (files.length) takePhoto(page, files[0]);
  else page.$(".message").textContent = otherwise;
}

export function buildPictures(page, images) {
  const { $, samples } = page;
  const buttons = images.map(({ src, alt }, i) => {
    const onclick = () => choosePicture(page, samples[i], { sample: i });
    return make("button", { type: "button", title: alt, onclick }, make("img", { src, alt }));
  });
  $(".samples").append(...buttons);
  const input = $("input[type=file]");
  input.onchange = () => {
    if (input.files.length) takePhoto(page, input.files[0]);
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
    takeFirst(page, event.dataTransfer.files, "That was not a file: drop a picture from your computer.");
  });
  section.tabIndex = -1; // so that what is pasted reaches it after a click anywhere
  section.addEventListener("paste", (event) => {
    takeFirst(page, event.clipboardData.files, "What you pasted is not a picture: copy a picture first.");
  });
}

export function buildPens({ $, pad, sizes }) {
  if (sizes.C === 1) {
    const pens = { Draw: "white", Erase: "black" };
    const texts = Object.keys(pens);
    const labels = texts.map((text) => make("span", { textContent: text, title: text }));
    $(".colours").classList.add("modes");
    radios($(".colours"), "pen", labels, (i) => pad.choose(pens[texts[i]]));
    return;
  }
  const names = Object.keys(COLOURS);
  const swatches = names.map((name) => {
    const swatch = make("span", { title: name }, make("span", { className: "spoken", textContent: name }));
    swatch.style.background = `rgb(${COLOURS[name].map((v) => Math.round(255 * v)).join(" ")})`;
    return swatch;
  });
  $(".colours").classList.add("swatches");
  radios($(".colours"), "pen", swatches, (i) => pad.choose(names[i]));
}
