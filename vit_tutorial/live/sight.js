// What a stop of the tour asks for is brought into sight, below the tour, which stays there.

import { reveal } from "./dom.js";

const GAP = 12; // pixels between the tour and what is scrolled to, see layout.css

export function measure({ $ }) {
  $(".live").style.setProperty("--tour-height", `${$(".tour").offsetHeight}px`);
}

// Of a diagram that is wider than the screen: the open part, or the blocks.
function scrollMap({ $ }) {
  const part = $(".map [aria-current]") ?? $('.map [data-part="blocks.0"]');
  if (part) $(".map").scrollLeft = part.offsetLeft - part.offsetWidth / 2;
}

// Scrolls as little down as it takes to see all targets, or to the first of them if there is no room for all.
export function bringIntoSight(page) {
  const { $, $$ } = page;
  measure(page);
  scrollMap(page);
  const isBeside = getComputedStyle($(".input-column")).position === "sticky"; // so it is always in sight
  const topOf = (element) => element.getBoundingClientRect().top;
  const below = $$(".tour-target")
    .filter((one) => one.checkVisibility() && !(isBeside && one.closest(".input-column")))
    .sort((a, b) => topOf(a) - topOf(b));
  const bottom = Math.max(...below.map((one) => one.getBoundingClientRect().bottom));
  const hasRoom = (from) => {
    const covered = from.matches(".live") ? 0 : $(".tour").offsetHeight + GAP;
    return bottom - topOf(from) + covered + GAP <= window.innerHeight;
  };
  const [first = $(".live")] = below;
  const above = [".live", ".model", ".panel"].map($).filter((one) => topOf(one) <= topOf(first));
  reveal(above.find(hasRoom) ?? first, "start");
}
