// Tasks at the end of the story, one after the other, each done by cutting parts: the page sees when one is.

import { answerOf, best } from "./answer.js";
import { isChanged } from "./changes.js";
import { make, unbroken } from "./dom.js";
import { explainWords } from "./words.js";

// cut: the parts to be cut; isEnough: whether all are, by default one part; turns: whether the answer must change
const TASKS = [
  { text: "with one attention cut, it names something else", cut: /\d\.attention$/, turns: true },
  { text: "with one block cut, it names the same", cut: /^blocks\.\d+$/ },
  { text: "with one shortcut cut, + z or + z′, it names something else", cut: /residual$/, turns: true },
  { text: "with all MLPs cut, it names the same", cut: /mlp$/, isEnough: ({ off, L }) => off.length === L },
  { text: "with half of all heads cut, it names the same", cut: /attention(\.heads\.\d+)?$/, isEnough: isHalfOfHeads },
];

function isHalfOfHeads({ L, h, isHeadOn }) {
  const heads = [...Array(L * h).keys()];
  return heads.filter((i) => isHeadOn(Math.floor(i / h), i % h)).length === Math.floor((L * h) / 2);
}

// The stop's sentence.
export function write(page, text) {
  page.$(".sentence").textContent = unbroken(text);
  explainWords(page);
}

export function taskOf({ state: { task } }) {
  if (task === TASKS.length) return "All tasks are done: go on at the end of this page.";
  return `Task ${task + 1}: ${TASKS[task].text}.`;
}

// Whether what the task asks for is cut, and nothing else is changed.
function isAsked({ cut, isEnough = ({ off }) => off.length === 1 }, scene) {
  const { off } = scene.changes;
  const isCut = isEnough({ ...scene, off }) && off.every((part) => cut.test(part));
  return isCut && !isChanged({ ...scene.changes, off: [] });
}

// Says whether what was cut does the task, and then the next one.
function drawTasks(page, scene) {
  const { model, shown, state } = page;
  const task = TASKS[state.task];
  const [before, now] = [shown.before, shown.now].map((run) => answerOf(model, run));
  if (!task || !isChanged(scene.changes)) return write(page, taskOf(page));
  if (!isAsked(task, scene)) return write(page, `${taskOf(page)} Not yet: it asks for another change.`);
  const { turns = false } = task;
  if ((best(shown.now) !== best(shown.before)) !== turns) {
    return write(page, `${taskOf(page)} Now it says ${now}: not yet.`);
  }
  state.task++;
  write(page, `✓ ${before} → ${now}. Press Reset. ${taskOf(page)}`);
}

// Where a reader goes on: a picture of their own where this model takes one, and other pages.
function buildNextPages({ $, model: { nextPages, isOfDigits } }) {
  const own = make("button", { type: "button", textContent: "A picture of your own" });
  own.onclick = () => $("input[type=file]").click();
  const links = Object.entries(nextPages).map(([textContent, href]) => make("a", { textContent, href }));
  const other =
    "lesson 01 begins to build this model. On a computer, vit-tutorial live --weights photographs makes a page like this of photographs.";
  $(".next-pages").replaceChildren("Go on: ", ...(isOfDigits ? [] : [own]), ...(links.length ? links : [other]));
}

export function buildTasks(page) {
  const { state, stops, shown, drawers } = page;
  let told = null; // the last pass that the sentence was written for
  buildNextPages(page);
  drawers.push((scene) => {
    if (!stops[state.stop].hasTasks || told === shown.now) return;
    told = shown.now;
    drawTasks(page, scene);
  });
  return {
    "next-task"() {
      state.task = state.task < TASKS.length - 1 ? state.task + 1 : 0;
      write(page, (isChanged(state.changes) ? "Press Reset. " : "") + taskOf(page));
    },
  };
}
