// Words in the station where they are first seen, explained as the book's glossary does.

import { make } from "./dom.js";

export function buildWords({ $$, data }) {
  const known = new Set();
  for (const station of $$(".station")) {
    const isNew = (term) => {
      const [word] = term.split(" ("); // head (of attention)
      return !known.has(word) && new RegExp(`\\b${word}(s|es)?\\b`, "i").test(station.textContent);
    };
    const terms = Object.keys(data.words).filter(isNew);
    if (!terms.length) continue;
    for (const term of terms) known.add(term.split(" (")[0]);
    const summary = make("summary", { textContent: `Words: ${terms.join(" · ")}` });
    const list = terms.flatMap((textContent) => [
      make("dt", { textContent }),
      make("dd", { textContent: data.words[textContent] }),
    ]);
    station.append(make("details", { className: "words" }, summary, make("dl", {}, ...list)));
  }
}
