import { best } from "../answer.js";
import { percent } from "../cells.js";
import { blockName } from "../changes.js";
import { make } from "../dom.js";
import { lens } from "../model.js";

const SHOWN = 3; // classes after each block

function stepNames({ L, isBlockOn }) {
  const blocks = Array.from(
    { length: L },
    (_, layer) => `after ${blockName(layer)}${isBlockOn(layer) ? "" : " (off)"}`,
  );
  return ["after the embedding", ...blocks];
}

function drawAnswers({ $ }, { classes, run }, answers, names) {
  const rows = answers.map((answer, step) => {
    const order = [...answer.keys()].sort((a, b) => answer[b] - answer[a]).slice(0, SHOWN);
    const chips = order.map((k) => {
      const name = make("b", { textContent: classes[k] });
      const chip = make("span", { className: k === best(run) ? "chip top" : "chip" }, name, ` ${percent(answer[k])}`);
      chip.style.setProperty("--fraction", `${100 * answer[k]}%`);
      return chip;
    });
    const name = make("span", { className: "row-name", textContent: names[step] });
    return make("div", { className: "lens-row" }, name, ...chips);
  });
  $(".lens").replaceChildren(...rows);
}

export const layersStation = {
  title: "Block by block",
  texts: {
    noneSeen({ config }) {
      if (config.pool !== "cls") return "";
      return "After the embedding it is the same for every picture: the class token has seen no patch yet.";
    },
  },
  draw(page, scene) {
    const answers = lens(scene.run, scene.weights, scene.config);
    drawAnswers(page, scene, answers, stepNames(scene));
  },
};
