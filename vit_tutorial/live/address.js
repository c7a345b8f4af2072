// The page's address. A page of its own has one for each stop of the tour, so that the browser's Back steps back; and
// a link that is pasted into an open page is obeyed.

import { go } from "./choice.js";
import { linkIn } from "./link.js";
import { follow } from "./page.js";

const hashOf = (number) => (number ? `#stop=${number + 1}` : "");

// A stop of the tour was reached.
export function noteStop({ hasOwnAddress }, number) {
  if (!hasOwnAddress || location.hash === hashOf(number)) return;
  history.pushState(null, "", `${location.pathname}${location.search}${hashOf(number)}`);
}

// The stop that the address names; null: none, or one that this tour doesn't have.
function stopIn({ hasOwnAddress }, count) {
  const number = location.hash ? Number(/^#stop=(\d+)$/.exec(location.hash)?.[1]) - 1 : 0;
  return hasOwnAddress && number >= 0 && number < count ? number : null;
}

// Opens what the address names, now and whenever it is another.
export function followAddress(page, tour) {
  async function open() {
    const { state, $ } = page;
    const before = { ...state };
    const number = stopIn(page, tour.count);
    if (number !== null) await tour.arrive(number);
    try {
      const link = linkIn(page, location.hash);
      if (link) await tour.resume(link);
    } catch {
      Object.assign(state, before);
      go(page, state.station);
      $(".message").textContent = "The link is damaged, or was made for another model: the page stays as it is.";
      await follow(page);
    }
  }
  window.addEventListener("hashchange", open);
  if (location.hash) open();
}
