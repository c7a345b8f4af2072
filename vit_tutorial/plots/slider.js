// Gives each [data-vit-slider] that has none yet its slider: its first picture is there, the others are in its JSON.
for (const place of document.querySelectorAll("[data-vit-slider]:not([data-ready])")) {
  place.dataset.ready = "";
  const frames = JSON.parse(place.querySelector("[type='application/json']").textContent);
  const picture = place.querySelector("img");
  frames[0].src = picture.src;
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: 0, max: frames.length - 1, value: 0 });
  input.style.cssText = "width: min(50%, 360px); vertical-align: middle; margin: 0 8px";
  const name = document.createElement("output");
  const label = document.createElement("label");
  label.append(place.dataset.label, input, name);
  const show = () => {
    const frame = frames[input.value];
    picture.src = frame.src;
    name.value = frame.name;
    input.setAttribute("aria-valuetext", frame.name);
  };
  input.addEventListener("input", show);
  show();
  place.prepend(label);
}
