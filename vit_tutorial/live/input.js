// The picture that the model is given: drawn, chosen, opened, dropped or pasted.

import { isArranged } from "./changes.js";
import { make, radios } from "./dom.js";
import { drawingPad } from "./pad.js";
import { follow, remember, sayAnswer, tell } from "./page.js";
import { readPhoto, rearrange } from "./pictures.js";

// What is said of a drawing whose pen was lifted.
function adviceOn({ pad, model: { sizes, isOfDigits } }, wasSample) {
  if (pad.isEmpty()) return "The pad is empty. The model must name something even so.";
  if (pad.isFull()) return "The pad is full. Clear gives you an empty one: draw thin lines on it.";
  if (sizes.C > 1) return "";
  if (wasSample) return "You drew on top of the picture that was there: Clear gives you an empty pad.";
  const others = isOfDigits ? "digits" : "pictures";
  return pad.frame() ? `Enlarged and centred for the model, like the ${others} that it learned from.` : "";
}

const PENS = ["Draw", "Erase"];

export function buildPad(page) {
  const { $, state, model, say, previews } = page;
  const { config, sizes, white } = model;
  let isOnSample = false; // the line that is drawn
  $(".pad canvas").style.aspectRatio = `${sizes.W} / ${sizes.H}`;
  page.pad = drawingPad($(".pad canvas"), config.shape, white, {
    begun() {
      isOnSample = state.sample >= 0;
      remember(page);
    },
    async drawn(picture, isFinal) {
      Object.assign(state, { picture, sample: -1, isDrawing: !isFinal });
      tell(page, isFinal ? adviceOn(page, isOnSample) : "");
      if (isFinal) isOnSample = false;
      await follow(page);
      if (isFinal) sayAnswer(page);
    },
    arranged: () => (isArranged(state.changes) ? rearrange(state.picture, model, state.changes) : null),
    say,
  });
  previews.push(page.pad.draw);
  const pens = PENS.map((textContent) => make("span", { textContent }));
  radios($(".colours"), "pen", pens, (i) => page.pad.choose(1 - i));
}

export async function choosePicture(page, picture, { sample = -1, ink = picture, message = "" } = {}) {
  const { state, pad } = page;
  if (picture !== state.picture) remember(page);
  Object.assign(state, { picture, sample });
  tell(page, message);
  pad.show(ink);
  await follow(page);
  sayAnswer(page);
}

async function takePhoto(page, file) {
  const { $, model } = page;
  if (model.isOfDigits) {
    $(".message").textContent = "This model reads digits: draw one.";
    return;
  }
  try {
    $(".message").textContent = `Reading ${file.name || "your picture"}: a large one takes some seconds.`;
    const { picture, done } = await readPhoto(file, model);
    const taken = picture.map((v) => Math.round(model.white * v) / model.white);
    await choosePicture(page, taken, { message: done });
  } catch (error) {
    $(".message").textContent = error.message;
  }
}

export function buildPictures(page, images) {
  const { $, model } = page;
  const buttons = images.map(({ src, alt }, i) => {
    const onclick = () => choosePicture(page, model.samples[i], { sample: i });
    return make("button", { type: "button", title: alt, onclick }, make("img", { src, alt }));
  });
  $(".samples").append(...buttons);
  $('[data-do="open"]').classList.toggle("hidden", model.isOfDigits);
  const input = $("input[type=file]");
  input.onchange = () => {
    if (input.files.length) takePhoto(page, input.files[0]);
    input.value = "";
  };
  const section = $(".live");
  section.addEventListener("dragover", (event) => event.preventDefault());
  section.addEventListener("drop", (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) takePhoto(page, file);
    else $(".message").textContent = "That was not a file: drop a picture from your computer.";
  });
}
