// Words where the page first has them, each explained as in the book's glossary: for hover, touch and screen readers.

import { make } from "./dom.js";

// What is pressed, or drawn anew.
const UNMARKED = "button, dfn, .eq, .questions, .switched-off, .example-patches, .caption, [data-show], [data-text]";

// The texts of a station; last those that are hidden until the mathematics is shown.
function textsOf(station) {
  const walker = document.createTreeWalker(station, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  const isFine = ({ parentElement }) => Number(Boolean(parentElement.closest(".math")));
  return texts.filter(({ parentElement }) => !parentElement.closest(UNMARKED)).sort((a, b) => isFine(a) - isFine(b));
}

const ROOM = 120; // pixels that an explanation needs below its word
const isLow = (term) => term.getBoundingClientRect().bottom + ROOM > window.innerHeight;

export function buildWords({ $$, model }) {
  for (const [word, meaning] of Object.entries(model.words)) {
    const pattern = new RegExp(`\\b${word}(s|es)?\\b`, "i");
    const text = $$(".station")
      .flatMap(textsOf)
      .find((one) => pattern.test(one.data));
    if (!text) continue; // such a model has none
    const seen = text.splitText(text.data.search(pattern));
    seen.splitText(seen.data.match(pattern)[0].length);
    const term = make("dfn", { tabIndex: 0 });
    term.setAttribute("aria-description", meaning);
    term.onclick = (event) => {
      event.preventDefault(); // within a label, a tap would go to its slider
      term.focus();
    };
    term.onpointerenter = term.onfocus = () => term.classList.toggle("opens-upwards", isLow(term));
    seen.replaceWith(term);
    term.append(seen);
  }
}
