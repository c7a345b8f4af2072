// What a stop of the tour asks for is brought into sight, below what stays there.

import { reveal } from "./dom.js";
import { draw } from "./page.js";
import { isGuessingPatch } from "./story.js";

const NARROW = 640; // pixels of the page, on a phone

// How much of the screen the tour covers, and with the diagram, where that stays in view.
export function measure({ $ }) {
  const [tour, model, choose] = [$(".tour"), $(".model"), $(".selection")];
  const isStuck = getComputedStyle(model).position === "sticky";
  const stuck = tour.offsetHeight + (isStuck ? model.offsetHeight + 8 : 0);
  $(".live").style.setProperty("--tour-height", `${tour.offsetHeight}px`);
  $(".live").style.setProperty("--stuck", `${stuck}px`);
  const hasRoom = stuck + choose.offsetHeight + 12 <= window.innerHeight; // else its end would be lost
  choose.classList.toggle("sticky", isStuck && hasRoom);
  return stuck;
}

const topOf = (element) => element.getBoundingClientRect().top;
const bottomOf = (element) => element.getBoundingClientRect().bottom;

// Scrolls so that all that a stop asks for is in sight, and its station's heading, too, if there is room. On a phone,
// or where it doesn't fit, all else of the station is hidden.
export function bringIntoSight(page, targets) {
  const { $ } = page;
  const stuck = measure(page);
  const below = targets
    .filter((element) => element.checkVisibility() && element.closest(".panel:not(:has(.sticky)), .station"))
    .map((element) => element.closest(".selection") ?? element);
  if (!below.length) return reveal(targets[0]);
  const first = () => below.reduce((a, b) => (topOf(a) <= topOf(b) ? a : b));
  const room = window.innerHeight - stuck - 40;
  const hasRoom = (from) =>
    from && topOf(from) <= topOf(first()) && Math.max(...below.map(bottomOf)) - topOf(from) < room;
  const isNarrow = $(".live").clientWidth <= NARROW || $(".live").matches(".projector");
  $(".live").classList.toggle("targets-only", isGuessingPatch(page) || isNarrow || !hasRoom(first()));
  draw(page); // numbers that have no room in their cells any more
  const heading = $(".station:not(.hidden) h3");
  reveal(hasRoom(heading) ? heading : first(), "start");
}
