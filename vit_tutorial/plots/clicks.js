// Gives each [data-vit-clicks] its canvases, in place of the still: clicks mark object and background, a mask follows.
for (const place of document.querySelectorAll("[data-vit-clicks]")) {
  place.removeAttribute("data-vit-clicks");
  const data = JSON.parse(place.querySelector("[type='application/json']").textContent);
  const { pictures, side, masks } = data;
  const still = place.querySelector("img");
  const features = data.features.map((text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
  const width = features[0].length / side ** 2;
  const colours = { object: "#E69F00", background: "#0072B2" };
  let clicks = [...data.clicks];

  const vectorOf = ({ picture, patch }) => features[picture].subarray(patch * width, (patch + 1) * width);
  // Each patch gets the label of the click that it is most like.
  const objects = (index) => {
    const marked = clicks.map((click) => ({ vector: vectorOf(click), object: click.object }));
    return Array.from({ length: side ** 2 }, (_, row) => {
      let [best, label] = [-Infinity, false];
      for (const { vector, object } of marked) {
        let sum = 0;
        for (let n = 0; n < width; n++) sum += vector[n] * features[index][row * width + n];
        if (sum > best) [best, label] = [sum, object];
      }
      return label;
    });
  };

  const button = (text, pressed) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.onclick = pressed;
    made.style.cssText = "margin-right: 8px";
    return made;
  };
  const choice = document.createElement("select");
  choice.append(new Option("object"), new Option("background"));
  const label = document.createElement("label");
  label.append("the next click marks ", choice, " ");
  const output = document.createElement("output");
  const bar = document.createElement("div");
  bar.append(
    label,
    button("undo", () => show(clicks.pop())),
    button("start again", () => {
      clicks = [];
      show();
    }),
    output,
  );
  const row = document.createElement("div");
  row.style.cssText = "display: flex; flex-wrap: wrap; gap: 6px; margin: 4px 0";
  const small = document.createElement("canvas"); // a pixel a patch
  Object.assign(small, { width: side, height: side });
  const shade = small.getContext("2d");
  const images = pictures.map((source) => Object.assign(new Image(), { src: source, onload: () => show() }));
  const canvases = pictures.map((_, index) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 370, height: 370 });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", still.alt);
    canvas.style.cssText = "flex: 1 1 150px; min-width: 0; max-width: 370px; cursor: crosshair";
    canvas.onclick = ({ offsetX, offsetY }) => {
      const [column, line] = [offsetX, offsetY].map((place) => Math.floor((side * place) / canvas.clientWidth));
      clicks.push({ picture: index, patch: side * line + column, object: choice.value === "object" });
      show();
    };
    row.append(canvas);
    return canvas;
  });
  const show = () => {
    const scores = canvases.map((canvas, index) => {
      const found = objects(index);
      draw(canvas, index, found);
      const both = found.filter((inside, n) => inside && masks[index][n] === "1").length;
      const either = found.filter((inside, n) => inside || masks[index][n] === "1").length;
      return `${Math.round((100 * both) / either)} %`;
    });
    output.value = `${clicks.length} clicks, IoU with the mask drawn by hand: ${scores.join(", ")}`;
  };
  const draw = (canvas, index, found) => {
    const context = canvas.getContext("2d");
    const patch = canvas.width / side;
    const paint = shade.createImageData(side, side);
    found.forEach((inside, n) => (paint.data[4 * n + 3] = inside ? 0 : 190)); // black over the background
    shade.putImageData(paint, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(images[index], 0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    for (const click of clicks.filter(({ picture }) => picture === index)) {
      context.beginPath();
      context.arc(((click.patch % side) + 0.5) * patch, (Math.floor(click.patch / side) + 0.5) * patch, 6, 0, 7);
      context.fillStyle = colours[click.object ? "object" : "background"];
      Object.assign(context, { strokeStyle: "#ffffff", lineWidth: 2 });
      context.fill();
      context.stroke();
    }
  };
  still.replaceWith(bar, row);
  show();
}
