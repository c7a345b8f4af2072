import { make } from "../../pages/page.js";
import { best } from "../answer.js";
import { cells, percent, inPercent } from "../cells.js";
import { lens } from "../model.js";

const SHOWN = 3; // classes after each block

function stepNames({ L }, isBlockOn) {
  const blocks = Array.from({ length: L }, (_, layer) => `after block ${layer}${isBlockOn(layer) ? "" : " (off)"}`);
  return ["after the embedding", ...blocks];
}

function drawAnswers({ $, classes, now }, steps, names) {
  const rows = steps.map(({ answer }, step) => {
    const order = [...answer.keys()].sort((a, b) => answer[b] - answer[a]).slice(0, SHOWN);
    const chips = order.map((k) => {
      const name = make("b", { textContent: classes[k] });
      const chip = make("span", { className: k === best(now) ? "chip top" : "chip" }, name, ` ${percent(answer[k])}`);
      chip.style.setProperty("--share", `${100 * answer[k]}%`);
      return chip;
    });
    return make(
      "div",
      { className: "lens-row" },
      make("span", { className: "when", textContent: names[step] }),
      ...chips,
    );
  });
  $(".lens").replaceChildren(...rows);
}

function drawPatchLens(page, steps, names) {
  const { $, classes, sizes, state } = page;
  const { N, prefix, columns } = sizes;
  $(".patch-lens").classList.toggle("hidden", !steps[0].tokens);
  if (!steps[0].tokens) return;
  const k = state.read ?? best(page.now);
  $(".patch-lens select").value = k;
  page.patchMaps.forEach((view, step) => {
    const { tokens } = steps[step];
    view.show({
      values: Float32Array.from({ length: N }, (_, n) => tokens[(n + prefix) * classes.length + k]),
      columns,
      colours: "heat",
      most: 1,
      square: true,
      write: inPercent,
      name: (i) => `${names[step]}, patch ${i} as ${classes[k]}`,
      clicked: (i) => page.chooseToken(i + prefix),
    });
  });
}

export const layersStation = {
  title: "Block by block",
  texts: {
    noneSeen({ config }) {
      if (!["cls", "distilled"].includes(config.pool)) return "";
      return "After the embedding it is the same for every picture: the class token has seen no patch yet.";
    },
  },
  build(page) {
    const { $, classes, state, sizes } = page;
    const select = $(".patch-lens select");
    select.append(...classes.map((name, k) => make("option", { textContent: name, value: k })));
    select.onchange = () => {
      state.read = Number(select.value);
      page.draw();
    };
    page.patchMaps = stepNames(sizes, () => true).map((name) => {
      const place = make("div", { className: "patch-map" }, make("span", { className: "when", textContent: name }));
      $(".patch-maps").append(place);
      return cells(page, place, `Patches ${name}`);
    });
  },
  draw(page, { isBlockOn }) {
    const steps = lens(page.now, page.weights, page.config, page.of.changes.answer);
    const names = stepNames(page.sizes, isBlockOn);
    drawAnswers(page, steps, names);
    drawPatchLens(page, steps, names);
  },
};
