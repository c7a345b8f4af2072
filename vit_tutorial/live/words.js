// The words that a reader sees, each explained where it stands first, as in the book's glossary: for hover, touch, keys
// and screen readers.

import { clamp, make } from "./dom.js";

// What is pressed, or written anew.
const UNMARKED = "button, .spoken, .picker, .eq, .switched-off, .example-patches, .caption, [data-show], [data-text]";
const ROOM = 120; // pixels that an explanation needs below its word
const WIDTH = 480; // that it needs beside it, at most

function textsOf(place) {
  const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  return texts.filter(({ parentElement: parent }) => parent.checkVisibility() && !parent.closest(UNMARKED));
}

function open(term) {
  const { left, bottom } = term.getBoundingClientRect();
  const around = term.offsetParent.getBoundingClientRect();
  term.style.setProperty("--left", `${clamp(left - around.left, 0, Math.max(0, around.width - WIDTH))}px`);
  term.classList.toggle("opens-upwards", bottom + ROOM > window.innerHeight);
  term.classList.add("explained");
}

const close = (term) => term.classList.remove("explained");

function mark(word, meaning) {
  const term = make("dfn", { tabIndex: 0 });
  term.setAttribute("aria-description", meaning);
  term.onclick = (event) => {
    event.preventDefault(); // within a label, a tap would go to its slider
    term.focus();
  };
  term.onpointerenter = term.onfocus = () => open(term);
  term.onpointerleave = term.onblur = () => close(term);
  word.replaceWith(term);
  term.append(word);
}

export const closeWords = ({ $$ }) => $$("dfn").forEach((term) => close(term));

// Of the tour's sentence and the open station, whenever others are seen.
export function explainWords({ $, $$, model }) {
  for (const term of $$("dfn")) term.replaceWith(term.textContent);
  const places = [".sentence", ".panel"].map($);
  for (const place of places) place.normalize();
  const texts = places.flatMap(textsOf);
  for (const [word, meaning] of Object.entries(model.words)) {
    const pattern = new RegExp(`\\b${word}(s|es)?\\b`, "i");
    const place = texts.findIndex((one) => pattern.test(one.data));
    if (place < 0) continue;
    const seen = texts[place].splitText(texts[place].data.search(pattern));
    texts.splice(place + 1, 0, seen.splitText(seen.data.match(pattern)[0].length));
    mark(seen, meaning);
  }
}
