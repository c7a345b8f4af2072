// Gives each [data-vit-matches] its canvases, in place of the still: patches of the others like the one that is chosen.
for (const place of document.querySelectorAll("[data-vit-matches]")) {
  place.removeAttribute("data-vit-matches");
  const { pictures, maps, side, start } = JSON.parse(place.querySelector("[type='application/json']").textContent);
  const still = place.querySelector("img");
  const row = document.createElement("div");
  row.setAttribute("role", "img");
  row.setAttribute("aria-label", still.alt);
  const views = pictures.map((source) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: side, height: side });
    canvas.style.cssText = "width: 15%; max-width: 128px; margin: 4px; image-rendering: pixelated";
    canvas.style.background = `url(${source}) 0 0 / 100% 100%`;
    row.append(canvas);
    return canvas.getContext("2d");
  });
  const choice = document.createElement("select");
  choice.append(...Object.keys(maps).map((name) => new Option(name)));
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: 0, max: side * side - 1, value: start });
  const show = () => {
    const cosines = Uint8Array.from(atob(maps[choice.value]), (letter) => letter.charCodeAt(0)); // (N, pictures, N)
    views.forEach((view, index) => {
      const paint = view.createImageData(side, side);
      for (let n = 0; n < side * side; n++) {
        const found = cosines[(input.valueAsNumber * views.length + index) * side * side + n];
        paint.data.set(index ? [190, 0, 40, found] : [0, 0, 0, n === input.valueAsNumber ? 0 : 150], 4 * n);
      }
      view.putImageData(paint, 0, 0);
    });
  };
  views[0].canvas.style.cursor = "pointer";
  views[0].canvas.onclick = ({ offsetX, offsetY, target }) => {
    const [column, line] = [offsetX, offsetY].map((at) => Math.floor((side * at) / target.clientWidth));
    input.value = side * line + column;
    show();
  };
  input.oninput = choice.onchange = show;
  const label = document.createElement("label");
  label.append("patch ", input);
  const after = document.createElement("label");
  after.append("after ", choice);
  still.replaceWith(row, label, after);
  show();
}
