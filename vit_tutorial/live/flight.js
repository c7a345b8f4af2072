// Numbers fly from where they were made to where they are used next, so that the eye can follow them.

import { cellBox, isStill, make } from "../pages/page.js";

const TIME = 900; // milliseconds

// A copy of a canvas, or of a box of its pixels, and where it is on the screen; null if it isn't seen.
/** @param {any} canvas @param {Box} box */
function snapshot(canvas, [x, y, w, h] = [0, 0, canvas?.width, canvas?.height]) {
  if (!canvas?.checkVisibility() || !w || !h) return null;
  const copy = make("canvas", { className: "flying", width: w, height: h, ariaHidden: "true" });
  copy.getContext("2d").drawImage(canvas, x, y, w, h, 0, 0, w, h);
  const { left, top, width, height } = canvas.getBoundingClientRect();
  const [across, down] = [width / canvas.width, height / canvas.height];
  return { copy, from: new DOMRect(left + x * across, top + y * down, w * across, h * down) };
}

// The followed patch, where the reader chose it.
export function takenPatch({ $, config, state, sizes }) {
  if (state.token < sizes.prefix) return null;
  const canvas = $(".picker canvas");
  return snapshot(canvas, cellBox(canvas, config.grid, state.token - sizes.prefix));
}

export const takenCells = (place) => snapshot(place?.querySelector("[data-show] .cells canvas[tabindex]"));

// What snapshot() gave moves to the first numbers of a place, and is gone.
export function fly({ $ }, taken, place) {
  const target = [...(place?.querySelector("[data-show], [data-map]")?.querySelectorAll("canvas[tabindex]") ?? [])].at(
    -1,
  );
  if (!taken || !target?.checkVisibility() || isStill()) return;
  const { copy, from } = taken;
  const to = target.getBoundingClientRect();
  const page = $(".live").getBoundingClientRect(); // with which the numbers scroll meanwhile
  Object.assign(copy.style, { width: `${to.width}px`, height: `${to.height}px` });
  $(".live").append(copy);
  const at = ({ left, top, width, height }) =>
    `translate(${left - page.left}px, ${top - page.top}px) scale(${width / to.width}, ${height / to.height})`;
  const moves = [
    { transform: at(from), opacity: 1 },
    { transform: at(to), opacity: 1, offset: 0.85 },
    { transform: at(to), opacity: 0 },
  ];
  copy.animate(moves, { duration: TIME, easing: "ease-in-out" }).finished.finally(() => copy.remove());
}
