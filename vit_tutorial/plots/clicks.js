// Gives each [data-vit-clicks] its canvases, in place of the still: clicks mark object and background, a mask follows.

import { bytes, Photographs, product } from "./photographs.js";

for (const place of document.querySelectorAll("[data-vit-clicks]")) {
  place.removeAttribute("data-vit-clicks");
  const data = JSON.parse(place.querySelector("[type='application/json']").textContent);
  const { pictures, side, masks } = data;
  const still = place.querySelector("img");
  const features = data.features.map(bytes);
  const width = features[0].length / side ** 2;
  const colours = { object: "#E69F00", background: "#0072B2" };
  let clicks = [...data.clicks];

  // Whether each patch is the object: it gets the label of the click that it is most like.
  const objects = (picture) => {
    const marked = clicks.map(({ picture, patch, object }) => {
      return { vector: features[picture].subarray(patch * width, (patch + 1) * width), object };
    });
    return Array.from({ length: side ** 2 }, (_, row) => {
      let [best, label] = [-Infinity, false];
      for (const { vector, object } of marked) {
        const likeness = product(vector, features[picture], row);
        if (likeness > best) [best, label] = [likeness, object];
      }
      return label;
    });
  };
  const iou = (picture, found) => {
    const inMask = (n) => masks[picture][n] === "1";
    const both = found.filter((inside, n) => inside && inMask(n)).length;
    const either = found.filter((inside, n) => inside || inMask(n)).length;
    return `${Math.round((100 * both) / either)} %`;
  };

  const show = () => {
    const found = pictures.map((_, picture) => objects(picture));
    found.forEach((inside, picture) => draw(picture, inside));
    const scores = found.map((inside, picture) => iou(picture, inside));
    output.value = `${clicks.length} clicks, IoU with the mask drawn by hand: ${scores.join(", ")}`;
  };
  const draw = (picture, found) => {
    const canvas = photographs.canvases[picture];
    photographs.draw(
      picture,
      found.map((inside) => (inside ? 0 : 190)),
    );
    for (const click of clicks.filter((click) => click.picture === picture)) dot(canvas, click);
    if (canvas.matches(":focus-visible") && photographs.at.picture === picture) photographs.frame(picture);
  };
  const dot = (canvas, { patch, object }) => {
    const context = canvas.getContext("2d");
    const size = canvas.width / side;
    context.beginPath();
    context.arc(((patch % side) + 0.5) * size, (Math.floor(patch / side) + 0.5) * size, 6, 0, 7);
    context.fillStyle = colours[object ? "object" : "background"];
    Object.assign(context, { strokeStyle: "#ffffff", lineWidth: 2 });
    context.fill();
    context.stroke();
  };

  const choice = document.createElement("select");
  choice.append(new Option("object"), new Option("background"));
  const label = document.createElement("label");
  label.append("the next click marks ", choice, " ");
  const button = (text, pressed) => {
    const made = document.createElement("button");
    made.textContent = text;
    made.style.cssText = "margin-right: 8px";
    made.onclick = () => {
      pressed();
      show();
    };
    return made;
  };
  const undo = button("undo", () => clicks.pop());
  const restart = button("start again", () => {
    clicks = [];
  });
  const output = document.createElement("output");
  const bar = document.createElement("div");
  bar.append(label, undo, restart, output);

  const alt = `${still.alt} Arrow keys move a frame, Enter clicks its patch.`;
  const photographs = new Photographs({ sources: pictures, side, alt, at: { picture: 0, patch: 0 }, show });
  const mark = () => {
    clicks.push({ ...photographs.at, object: choice.value === "object" });
    show();
  };
  photographs.canvases.forEach((canvas, picture) => {
    canvas.onclick = (event) => {
      photographs.moveToPointer(picture, event);
      mark();
    };
    canvas.onkeydown = (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      event.stopPropagation(); // the notebook's own keys
      mark();
    };
    canvas.onblur = show;
  });
  still.replaceWith(bar, photographs.row);
  show();
}
