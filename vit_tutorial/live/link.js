// All of the page's state as text for an address, and back.

import { bytes } from "./dom.js";

const textOf = (values, white) => btoa(String.fromCharCode(...Uint8Array.from(values, (v) => Math.round(white * v))));

// Tells models apart: a link is for one.
const idOf = ({ id }) => [...id].reduce((hash, letter) => (31 * hash + letter.charCodeAt(0)) >>> 0, 7).toString(36);

function pack({ state, model, pad }) {
  const { sample, changes, station, token, layer, head, picture, stop, isAway, isWhole } = state;
  const packed = { id: idOf(model), sample, changes, station, token, layer, head, stop, isAway, isWhole };
  if (sample < 0) {
    packed.picture = textOf(picture, model.white);
    packed.ink = textOf(pad.ink(), 255); // finer than the picture
  }
  const text = btoa(JSON.stringify(packed));
  return `live=${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

// Numbers in [0, 1], as many as there must be.
function numbersOf(text, white, count) {
  const levels = bytes(text);
  if (levels.length !== count) throw new Error("not a picture");
  return Float32Array.from(levels, (level) => level / white);
}

// The state that a link holds, and the ink of its drawing; an Error if it is damaged, or of another model.
function unpackLink({ model, pad }, text) {
  const { samples, white } = model;
  const { id, picture, ink, ...state } = JSON.parse(atob(text.replaceAll("-", "+").replaceAll("_", "/")));
  if (id !== idOf(model)) throw new Error("of another model");
  if (state.sample >= 0) return { state: { ...state, picture: samples[state.sample] }, ink: samples[state.sample] };
  const drawn = numbersOf(picture, white, samples[0].length);
  return { state: { ...state, picture: drawn }, ink: numbersOf(ink, 255, pad.ink().length) };
}

// What the link in an address holds, {state, ink}; null: there is none.
export function linkIn(page, hash) {
  const found = /[#&]live=([\w-]+)/.exec(hash);
  return found && unpackLink(page, found[1]);
}

export async function copyLink(page) {
  const url = `${location.href.split("#")[0]}#${pack(page)}`;
  let text = "Copied: whoever opens it sees what you see, your picture included.";
  try {
    history.replaceState(null, "", url);
  } catch {
    // a frame without an address of its own
  }
  try {
    await navigator.clipboard.writeText(url);
  } catch {
    text = "The link is in the address bar: copy it from there.";
  }
  page.$(".link-status").textContent = text;
}
