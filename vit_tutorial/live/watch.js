// Attention is watched: the moment that the stage shows moves on by itself, step by step, or along a slider. Its beats:
// one for each token that is asked, one in which softmax makes shares of scores, one for each token that gives.

import { digits, percent, rowOf } from "./cells.js";
import { clamp, isStill, make } from "./dom.js";
import { GUESSES, resultOf } from "./guess.js";
import { softmaxOf } from "./sources.js";
import { drawStage, momentOf, tokenAt } from "./stage.js";
import { isGuessing } from "./story.js";

const SECONDS = { ask: 6, squeeze: 2.5, take: 6 }; // that each part lasts, however many tokens there are

// What the stage draws of a scene.
function stageOf({ one, token, T, d, prefix, layer, head, isHeadOn, isFine, changes }, guess) {
  return {
    prefix,
    token,
    guess,
    isFine,
    changes,
    q: rowOf(one.q, token, d),
    k: one.k,
    v: one.v,
    scores: rowOf(one.scaled, token, T),
    shares: rowOf(one.weights, token, T),
    sums: rowOf(one.sums, token, d),
    flows: Number(isHeadOn(layer, head)),
  };
}

// What scores are divided by, as it is written: " ÷ √12 ÷ 0.5".
function divisorOf({ scale, temperature }, d) {
  return `${scale ? ` ÷ √${d}` : ""}${temperature === 1 ? "" : ` ÷ ${temperature}`}`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// What happens at a beat, in a sentence; part: of a stop that watches attention.
function captionOf(page, part, stage, beat) {
  const { theName } = page;
  const { token, scores, shares, flows, q, changes, isFine } = stage;
  const T = shares.length;
  const { current } = momentOf(beat, shares);
  if (beat === 0) return `${capital(theName(token))} asks: its q, ${q.length} numbers, goes to the k of every token.`;
  if (beat === T && part === "ask") return resultOf(page, part, stage);
  if (beat <= T) {
    const divisor = divisorOf(changes, q.length);
    return `${capital(theName(current))} answers: q · k${divisor} = ${digits(scores[current])}.`;
  }
  if (beat <= T + 1) {
    return `Softmax squeezes the scores to shares of 100 %: large ones win. ${resultOf(page, "look", stage)}`;
  }
  if (!flows) return "This head is cut: nothing of it goes on.";
  if (beat < 2 * T + 1) {
    const { text } = softmaxOf("", scores, isFine)(current);
    return `${text && `${text} = `}${percent(shares[current])} of the v of ${theName(current)} flows in.`;
  }
  return `All that flowed in is added up: what this head takes. ${resultOf(page, "take", stage)}`;
}

export function buildWatch(page) {
  const { $, state, sizes, watch } = page;
  const { T } = sizes;
  const canvas = $(".stage");
  const slider = $('[name="beat"]');
  slider.max = 2 * T + 1;
  const paper = matchMedia("print"); // a worksheet, where numbers are to be filled in
  let last = 0; // when the frame before was drawn, in milliseconds

  function drawGuesses(choices) {
    const buttons = choices.map((textContent, i) => {
      const onclick = () => {
        answer(i);
        $('[data-do="play"]').focus(); // the button that was pressed is gone
      };
      return make("button", { type: "button", textContent, onclick });
    });
    $(".guesses").replaceChildren(...buttons);
    $(".guesses").classList.toggle("hidden", !choices.length);
  }

  function draw() {
    const { scene } = watch;
    if (!scene || !canvas.clientWidth) return;
    const isOpen = isGuessing(page); // what is to be guessed isn't shown
    const part = page.stops[state.stop].watch;
    const played = isOpen ? parts[part][0] : watch.beat;
    const beat = paper.matches ? 0 : played;
    const stage = stageOf(scene, part === "ask" ? state.guess : null);
    drawStage(page, canvas, stage, beat);
    slider.value = Math.round(beat);
    const { before, choices = [] } = isOpen ? GUESSES[part] : {};
    drawGuesses(choices);
    const caption = before ?? captionOf(page, part, stage, beat);
    $(".watch .caption").textContent = caption;
    slider.setAttribute("aria-valuetext", caption);
    canvas.setAttribute("aria-label", `Attention as it happens: arrow keys choose a token. ${caption}`);
    $('[data-do="play"]').textContent = watch.isPlaying ? "Pause" : "Play";
    $(".moves").classList.toggle("hidden", isOpen);
  }

  // How many beats a second, at a beat.
  function speedAt(beat) {
    if (beat < T) return T / SECONDS.ask;
    return beat < T + 1 ? 1 / SECONDS.squeeze : T / SECONDS.take;
  }

  function move(now) {
    if (!watch.isPlaying) return;
    const seconds = clamp((now - last) / 1000, 0, 0.1); // a frame may begin before the click that it follows
    last = now;
    watch.beat = Math.min(watch.beat + seconds * speedAt(watch.beat), watch.end);
    if (watch.beat === watch.end || !canvas.checkVisibility()) watch.isPlaying = false;
    draw();
    requestAnimationFrame(move);
  }

  // From one beat to another; at once where the reader wants nothing to move.
  function play(from, end) {
    Object.assign(watch, { beat: isStill() ? end : from, end, isPlaying: !isStill() });
    last = performance.now();
    draw();
    requestAnimationFrame(move);
  }

  function show(beat) {
    Object.assign(watch, { beat, isPlaying: false });
    draw();
  }

  // The reader guessed: what was guessed is played.
  function answer(guess) {
    const part = page.stops[state.stop].watch;
    Object.assign(state, { guess, hasGuessed: true });
    play(...parts[part]);
    page.say(resultOf(page, part, stageOf(watch.scene, guess)));
  }

  const END = 2 * T + 1;
  const parts = { ask: [0, T], look: [T, T + 1], take: [T + 1, END] }; // of the story's stops
  slider.oninput = () => show(Number(slider.value));
  canvas.onclick = (event) => {
    const token = tokenAt(canvas, sizes, event);
    if (token !== null) page.chooseToken(token);
  };
  new ResizeObserver(draw).observe(canvas);
  paper.addEventListener("change", draw);
  Object.assign(watch, { beat: END, isPlaying: false, draw, answer });
  return {
    play() {
      if (watch.isPlaying) show(watch.beat);
      else play(watch.beat === END ? 0 : watch.beat, END);
    },
    step: () => show(watch.beat === END ? 0 : Math.min(Math.floor(watch.beat) + 1, END)),
  };
}
