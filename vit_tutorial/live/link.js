// All of the page's state as text for an address, and back.

import { bytes } from "../pages/page.js";
import { AS_TRAINED, fits, tidied } from "./changes.js";
import { STATIONS } from "./stations/index.js";
import { METHODS } from "./stations/looks.js";

const textOf = (values, white) => btoa(String.fromCharCode(...Uint8Array.from(values, (v) => Math.round(white * v))));

// Tells models apart: a link is for one.
function idOf({ data }) {
  const letters = [...data.weights.values.slice(-4000)];
  return letters.reduce((hash, letter) => (31 * hash + letter.charCodeAt(0)) >>> 0, 7).toString(36);
}

function pack(page) {
  const { sample, changes, station, token, layer, head, method, picture, stop, isAway, isWhole } = page.state;
  const packed = { id: idOf(page), sample, changes, station, token, layer, head, method, stop, isAway, isWhole };
  if (sample < 0) {
    packed.picture = textOf(picture, page.white);
    packed.ink = textOf(page.pad.ink(), 255); // finer than the picture
  }
  const text = btoa(JSON.stringify(packed));
  return `live=${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

// Numbers in [0, 1], as many as there must be; an Error otherwise.
function numbersOf(text, white, count) {
  const levels = bytes(text);
  if (levels.length !== count || levels.some((level) => level > white)) throw new Error("not a picture");
  return Float32Array.from(levels, (level) => level / white);
}

// The state that a link holds, and the ink of its drawing; an Error if it is damaged, or of another model.
function unpackLink(page, text) {
  const { samples, sizes, white, pad } = page;
  const packed = JSON.parse(atob(text.replaceAll("-", "+").replaceAll("_", "/")));
  const { id, sample, station, token, layer, head, method, stop, isAway, isWhole } = packed;
  const isIndex = (value, count) => Number.isInteger(value) && value >= 0 && value < count;
  const changes = Object.fromEntries(Object.keys(AS_TRAINED).map((name) => [name, packed.changes[name]]));
  const isSound =
    id === idOf(page) &&
    (sample === -1 || isIndex(sample, samples.length)) &&
    fits(changes, page.config) &&
    Object.hasOwn(STATIONS, station) &&
    Object.hasOwn(METHODS, method) &&
    isIndex(token, sizes.T) &&
    isIndex(layer, sizes.L) &&
    isIndex(head, sizes.h) &&
    isIndex(stop, page.stops.length) &&
    typeof isAway === "boolean" &&
    typeof isWhole === "boolean";
  if (!isSound) throw new Error("damaged, or of another model");
  const state = { sample, changes: tidied(changes), station, token, layer, head, method, stop, isAway, isWhole };
  if (sample >= 0) return { state: { ...state, picture: samples[sample] }, ink: samples[sample] };
  const picture = numbersOf(packed.picture, white, samples[0].length);
  return { state: { ...state, picture }, ink: numbersOf(packed.ink, 255, pad.ink().length) };
}

// What the link in an address holds, {state, ink}; null: there is none, or none for this page, which says so.
export function linkIn(page, hash) {
  const found = /[#&]live=([\w-]+)/.exec(hash);
  if (!found) return null;
  try {
    return unpackLink(page, found[1]);
  } catch {
    page.$(".message").textContent = "The link is damaged, or was made for another model: the page stays as it is.";
    return null;
  }
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
  page.$(".copied").textContent = text;
}
