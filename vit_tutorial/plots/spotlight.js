// Gives each [data-vit-spotlight] its canvases, in place of the still: what the patch under the pointer matches is lit.

import { bytes, Photographs, product } from "./photographs.js";

for (const place of document.querySelectorAll("[data-vit-spotlight]")) {
  place.removeAttribute("data-vit-spotlight");
  const { pictures, side, views, start, oneViewEach } = JSON.parse(
    place.querySelector("[type='application/json']").textContent,
  );
  const still = place.querySelector("img");
  for (const view of Object.values(views)) {
    view.keys = view.keys.map(bytes);
    view.queries = view.queries?.map(bytes) ?? view.keys;
    view.width = view.queries[0].length / side ** 2;
  }
  const choice = document.createElement("select");
  choice.append(...Object.keys(views).map((name) => new Option(name)));
  const viewOf = (picture) => Object.values(views)[oneViewEach ? picture : choice.selectedIndex];
  const output = document.createElement("output");
  const at = { ...start }; // the picture and the patch that are compared

  // How much each patch of a picture is lit, from 0 to 1.
  const heat = (picture) => {
    const { queries, keys, width, scale, softmax } = viewOf(picture);
    const [from, to] = oneViewEach ? [0, 0] : [at.picture, picture];
    const query = queries[from].subarray(at.patch * width, (at.patch + 1) * width);
    const rows = keys[to].length / width;
    const scores = Float32Array.from({ length: rows }, (_, row) => scale * product(query, keys[to], row));
    return softmax ? attention(scores) : scores.map((cosine) => Math.max(cosine, 0) ** 2);
  };
  const attention = (scores) => {
    const prefix = scores.length - side ** 2; // the class token has no place in the picture
    const most = scores.reduce((a, b) => Math.max(a, b));
    const powers = scores.map((score) => Math.exp(score - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    const largest = powers.subarray(prefix).reduce((a, b) => Math.max(a, b));
    output.value = ` largest weight on a patch: ${((largest / sum) * scores.length).toFixed(1)} × uniform`;
    return powers.subarray(prefix).map((power) => Math.sqrt(power / largest)); // so that small weights show, too
  };

  const show = () => {
    for (const picture of pictures.keys()) {
      photographs.draw(
        picture,
        heat(picture).map((lit) => 217 * (1 - lit)),
      );
      if (oneViewEach || picture === at.picture) photographs.frame(picture);
    }
  };
  const alt = `${still.alt} Arrow keys move the patch.`;
  const photographs = new Photographs({ sources: pictures, side, alt, at, show });
  photographs.canvases.forEach((canvas, picture) => {
    canvas.onpointermove = canvas.onpointerdown = (event) => photographs.moveToPointer(picture, event);
    const title = document.createElement("figcaption");
    if (oneViewEach) title.append(Object.keys(views)[picture]);
    canvas.before(title);
  });
  choice.onchange = show;
  const label = document.createElement("label");
  if (Object.keys(views).length > 1 && !oneViewEach) label.append(choice);
  label.append(output);
  still.replaceWith(photographs.row, label);
  show();
}
