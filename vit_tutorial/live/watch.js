// Attention is watched: the time that the stage shows moves on by itself, step by step, or along a slider. Its steps:
// one for each token’s score, one in which softmax makes weights of the scores, one for each token’s value.

import { digits, percent, rowOf } from "./cells.js";
import { clamp, isStill, make, unbroken } from "./dom.js";
import { candidatesOf, GUESSES, resultOf } from "./guess.js";
import { draw } from "./page.js";
import { chooseToken } from "./picker.js";
import { softmaxOf } from "./sources.js";
import { drawStage, progressOf, tokenAt } from "./stage.js";
import { isGuessing } from "./story.js";

const SECONDS = { ask: 6, softmax: 2.5, take: 6 }; // that each part lasts, however many tokens there are

// What the stage draws of a scene.
function stageOf({ one, token, T, d, prefix, layer, head, isHeadOn, isFine, changes }) {
  return {
    prefix,
    token,
    isFine,
    changes,
    q: rowOf(one.q, token, d),
    k: one.k,
    v: one.v,
    scores: rowOf(one.scaled, token, T),
    weights: rowOf(one.weights, token, T),
    sums: rowOf(one.sums, token, d),
    flows: Number(isHeadOn(layer, head)),
  };
}

// What scores are divided by, as it is written: " ÷ √12 ÷ 0.5".
function divisorOf({ scale, temperature }, d) {
  return `${scale ? ` ÷ √${d}` : ""}${temperature === 1 ? "" : ` ÷ ${temperature}`}`;
}

// The tokens whose k or v is shown at a time: those that may be guessed, the one that acts, or the one that won a part
// that is over; part: of a stop that watches attention.
function listedAt(stage, time, part) {
  const { scores, weights } = stage;
  const T = weights.length;
  if (time === 0 && part === "ask") return candidatesOf(stage);
  const isOver = (time === T && part) || time === T + 1 || time === 2 * T + 1;
  const current = isOver ? scores.indexOf(Math.max(...scores)) : progressOf(time, weights).current;
  return current === null ? [] : [current];
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// What happens at a time, in a sentence; part: of a stop that watches attention.
function captionOf(page, part, stage, time) {
  const { theName } = page.model;
  const { token, scores, weights, flows, q, changes, isFine } = stage;
  const T = weights.length;
  const { current } = progressOf(time, weights);
  if (time === 0) return `${capital(theName(token))} asks: its q, ${q.length} numbers, goes to the k of every token.`;
  if (time === T && part) return resultOf(page, "ask", stage);
  if (time <= T) {
    const divisor = divisorOf(changes, q.length);
    return `${capital(theName(current))} answers: q · k${divisor} = ${digits(scores[current])}.`;
  }
  if (time <= T + 1) {
    return `Softmax squeezes the scores to shares: large ones win. ${resultOf(page, "look", stage)}`;
  }
  if (!flows) return "This head is cut: nothing of it goes on.";
  if (time < 2 * T + 1) {
    const { text } = softmaxOf("", scores, isFine)(current);
    return `${text && `${text} = `}${percent(weights[current])} of the v of ${theName(current)} flows in.`;
  }
  return `All that flowed in is added up. ${resultOf(page, "take", stage)}`;
}

// The time that is shown, moved on by the clock; T tokens. It stops where isSeen() is false; each frame is drawn.
function playerOf(T, isSeen, drawNow) {
  const player = { time: 2 * T + 1, isPlaying: false };
  let end = player.time;
  let last = 0; // when the frame before was drawn, in milliseconds

  // How many steps a second.
  function speed() {
    if (player.time < T) return T / SECONDS.ask;
    return player.time < T + 1 ? 1 / SECONDS.softmax : T / SECONDS.take;
  }

  function move(now) {
    if (!player.isPlaying) return;
    const seconds = clamp((now - last) / 1000, 0, 0.1); // a frame may begin before the click that it follows
    last = now;
    player.time = Math.min(player.time + seconds * speed(), end);
    if (player.time === end || !isSeen()) player.isPlaying = false;
    drawNow();
    requestAnimationFrame(move);
  }

  // From one time to another; at once where the reader wants nothing to move.
  player.play = (from, to) => {
    end = to;
    last = performance.now();
    Object.assign(player, { time: isStill() ? to : from, isPlaying: !isStill() });
    drawNow();
    requestAnimationFrame(move);
  };
  player.show = (time) => {
    Object.assign(player, { time, isPlaying: false });
    drawNow();
  };
  return player;
}

// Returns what the buttons do.
export function buildWatch(page) {
  const { $, say, state, stops, drawers } = page;
  const { sizes } = page.model;
  const { T } = sizes;
  const END = 2 * T + 1;
  const parts = { ask: [0, T], look: [T, T + 1], take: [T + 1, END] }; // of the story's stops: from one time to another
  const canvas = $(".stage");
  const slider = $('[name="time"]');
  const paper = matchMedia("print"); // a worksheet, where numbers are to be filled in
  const player = playerOf(T, () => canvas.checkVisibility(), drawNow);
  let scene = null;
  let isWaiting = false; // for the reader's guess

  const partNow = () => stops[state.stop].watch; // that is guessed at this stop

  function drawGuesses(choices) {
    const guess = (number) => {
      Object.assign(state, { guess: number, hasGuessed: true });
      draw(page);
      $('[data-do="play"]').focus(); // the button that was pressed is gone
    };
    const buttons = choices.map((textContent, i) =>
      make("button", { type: "button", textContent, onclick: () => guess(i) }),
    );
    $(".guesses").replaceChildren(...buttons);
    $(".guesses").classList.toggle("hidden", !choices.length);
  }

  // What is to be guessed isn't shown: the stage waits where its part begins.
  function timeNow() {
    if (paper.matches) return 0;
    return isGuessing(page) ? parts[partNow()][0] : player.time;
  }

  function drawMoves(time) {
    const isOpen = isGuessing(page);
    slider.value = Math.round(time);
    drawGuesses(isOpen ? GUESSES[partNow()].choices(stageOf(scene), page.model) : []);
    $('[data-do="play"]').textContent = player.isPlaying ? "Pause" : "Play";
    $(".moves").classList.toggle("hidden", isOpen);
  }

  function write(caption) {
    $(".watch .caption").textContent = unbroken(caption);
    slider.setAttribute("aria-valuetext", caption);
    canvas.setAttribute("aria-label", `Attention as it happens: arrow keys choose a token. ${caption}`);
  }

  function drawNow() {
    if (!scene || !canvas.clientWidth) return;
    const [part, time] = [partNow(), timeNow()];
    const stage = stageOf(scene);
    stage.guessed = part === "ask" && state.guess !== null ? candidatesOf(stage)[state.guess] : null;
    stage.listed = listedAt(stage, time, part);
    drawStage(page, canvas, stage, time);
    drawMoves(time);
    write(isGuessing(page) ? GUESSES[part].before : captionOf(page, part, stage, time));
  }

  function drawScene(next) {
    if (state.station !== "attention") return;
    scene = next;
    const isAnswered = isWaiting && state.hasGuessed;
    isWaiting = isGuessing(page);
    if (!isAnswered) return drawNow();
    player.play(...parts[partNow()]); // what was guessed
    say(resultOf(page, partNow(), stageOf(scene)));
  }

  slider.max = END;
  slider.oninput = () => player.show(Number(slider.value));
  canvas.onclick = (event) => {
    const token = tokenAt(canvas, sizes, event);
    if (token !== null) chooseToken(page, token);
  };
  new ResizeObserver(drawNow).observe(canvas);
  paper.addEventListener("change", drawNow);
  drawers.push(drawScene);
  return {
    play() {
      if (player.isPlaying) player.show(player.time);
      else player.play(player.time === END ? 0 : player.time, END);
    },
    step: () => player.show(player.time === END ? 0 : Math.min(Math.floor(player.time) + 1, END)),
  };
}
