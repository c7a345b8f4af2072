// Gives each [data-vit-spotlight] its canvases, in place of the still: what the patch under the pointer matches is lit.
for (const place of document.querySelectorAll("[data-vit-spotlight]")) {
  place.removeAttribute("data-vit-spotlight");
  const { pictures, side, views, start, oneViewEach } = JSON.parse(
    place.querySelector("[type='application/json']").textContent,
  );
  const still = place.querySelector("img");
  const numbers = (text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  for (const view of Object.values(views)) {
    view.keys = view.keys.map(numbers);
    view.queries = view.queries?.map(numbers) ?? view.keys;
    view.width = view.queries[0].length / side ** 2;
  }
  const at = { ...start }; // the picture and the patch that are compared
  const choice = document.createElement("select");
  choice.append(...Object.keys(views).map((name) => new Option(name)));
  const viewOf = (index) => Object.values(views)[oneViewEach ? index : choice.selectedIndex];
  const output = document.createElement("output");

  // How much each patch of a picture is lit, from 0 to 1.
  const heat = (index) => {
    const { queries, keys, width, scale, softmax } = viewOf(index);
    const [from, to] = oneViewEach ? [0, 0] : [at.picture, index];
    const query = queries[from].subarray(at.patch * width, (at.patch + 1) * width);
    const scores = Float32Array.from({ length: keys[to].length / width }, (_, row) => {
      let sum = 0;
      for (let n = 0; n < width; n++) sum += query[n] * keys[to][row * width + n];
      return sum * scale;
    });
    const prefix = scores.length - side ** 2; // the class token has no place in the picture
    if (!softmax) return scores.map((cosine) => Math.max(cosine, 0) ** 2);
    const most = scores.reduce((a, b) => Math.max(a, b));
    const powers = scores.map((score) => Math.exp(score - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    const largest = powers.subarray(prefix).reduce((a, b) => Math.max(a, b));
    output.value = ` largest weight on a patch: ${((largest / sum) * scores.length).toFixed(1)} × uniform`;
    return powers.subarray(prefix).map((power) => Math.sqrt(power / largest)); // so that small weights show, too
  };

  const row = document.createElement("div");
  row.style.cssText = "display: flex; flex-wrap: wrap; gap: 6px; margin: 4px 0";
  const small = document.createElement("canvas"); // a pixel a patch
  Object.assign(small, { width: side, height: side });
  const shade = small.getContext("2d");
  const images = pictures.map((source) => Object.assign(new Image(), { src: source, onload: () => show() }));
  const canvases = pictures.map((_, index) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 370, height: 370, tabIndex: 0 });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${still.alt} Arrow keys move the patch.`);
    const wide = oneViewEach || pictures.length > 2 ? "150px" : "200px";
    canvas.style.cssText = "width: 100%; cursor: crosshair; touch-action: pan-y";
    const point = ({ offsetX, offsetY }) => {
      const [column, line] = [offsetX, offsetY].map((place) => Math.floor((side * place) / canvas.clientWidth));
      if (Math.min(column, line) < 0 || Math.max(column, line) >= side) return;
      Object.assign(at, { picture: index, patch: side * line + column });
      show();
    };
    canvas.onpointermove = canvas.onpointerdown = point;
    canvas.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation(); // the notebook's own keys
      const patch = at.picture === index || oneViewEach ? at.patch + step : at.patch;
      Object.assign(at, { picture: index, patch: (patch + side * side) % (side * side) });
      show();
    };
    const pane = document.createElement("figure");
    pane.style.cssText = `flex: 1 1 ${wide}; min-width: 0; max-width: 370px; margin: 0`;
    const title = document.createElement("figcaption");
    if (oneViewEach) title.append(Object.keys(views)[index]);
    pane.append(title, canvas);
    row.append(pane);
    return canvas;
  });
  const show = () => {
    canvases.forEach((canvas, index) => {
      const context = canvas.getContext("2d");
      const paint = shade.createImageData(side, side);
      heat(index).forEach((lit, n) => (paint.data[4 * n + 3] = 217 * (1 - lit))); // black, less of it where it is lit
      shade.putImageData(paint, 0, 0);
      context.imageSmoothingEnabled = images[index].width > canvas.width / 2;
      context.drawImage(images[index], 0, 0, canvas.width, canvas.height);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, canvas.width, canvas.height);
      if (index !== at.picture && !oneViewEach) return;
      const patch = canvas.width / side;
      Object.assign(context, { strokeStyle: "#ffffff", lineWidth: 5 });
      const frame = [(at.patch % side) * patch, Math.floor(at.patch / side) * patch, patch, patch];
      context.strokeRect(...frame);
      Object.assign(context, { strokeStyle: "#0072B2", lineWidth: 3 });
      context.strokeRect(...frame);
    });
  };
  choice.onchange = show;
  const label = document.createElement("label");
  if (Object.keys(views).length > 1 && !oneViewEach) label.append(choice);
  label.append(output);
  still.replaceWith(row, label);
  show();
}
