import {
  ARROWS,
  begin,
  bytes,
  cellBox,
  cellUnder,
  clamp,
  colourAt,
  drawFrame,
  hasModifier,
  largest,
  make,
  pixelsOf,
  sharpen,
  specialButtons,
} from "../pages/page.js";

const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
const ranked = (row) => [...row.keys()].sort((a, b) => row[b] - row[a] || a - b);

// The weights of one picture. A layer is decoded when it is first asked for; the chunk after the last is the rollout.
function reader(picture, layers, heads, tokens) {
  const packed = [...picture.layers, picture.rollout];
  const chunks = [];

  function decode(index) {
    if (!chunks[index]) {
      const { values, most } = packed[index];
      chunks[index] = { values: bytes(values), most: new Float32Array(bytes(most).buffer) };
    }
    return chunks[index];
  }

  // (T,): where the query looks
  function row(mode, layer, head, query) {
    const { values, most } = decode(mode === "rollout" ? layers : layer);
    const chosen = { rollout: [0], head: [head], mean: [...Array(heads).keys()] }[mode];
    const out = new Float64Array(tokens);
    for (const h of chosen) {
      const line = h * tokens + query;
      const scale = most[line] / 255 / chosen.length;
      for (let t = 0; t < tokens; t++) out[t] += scale * values[line * tokens + t];
    }
    return out;
  }

  return { row, decode, isDecoded: (layer) => Boolean(chunks[layer]) };
}

// A copy without colour, so that heat on it can be read.
function greyed(image) {
  const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  const p = pixels.data;
  for (let i = 0; i < p.length; i += 4) p.fill((p[i] + p[i + 1] + p[i + 2]) / 3, i, i + 3);
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function start({ host, root, data, images }) {
  const $ = (selector) => root.querySelector(selector);
  const { layers, heads, pictures, grid } = data;
  const [rows, columns] = grid;
  const special = Object.keys(data.special);
  const prefix = special.length;
  const patches = rows * columns;
  const tokens = prefix + patches;
  const greys = images.map(greyed);
  const readers = pictures.map((picture) => reader(picture, layers, heads, tokens));
  const colours = { query: "", key: "" };
  for (const role of Object.keys(colours)) colours[role] = getComputedStyle(host).getPropertyValue(`--${role}`);
  const state = {
    picture: 0,
    mode: "head",
    layer: layers - 1,
    head: 0,
    overlay: 70,
    query: prefix ? 0 : Math.floor(rows / 2) * columns + Math.floor(columns / 2),
    key: null, // the token whose weight is read; null: the one with the largest
    pointed: { query: null, key: null }, // under the pointer, in place of the chosen ones
  };

  const at = (token) => [Math.floor((token - prefix) / columns), (token - prefix) % columns]; // row, column
  const name = (token) => special[token] ?? `patch ${token - prefix}`;
  const place = (token) => (token < prefix ? "" : `row ${at(token)[0]}, column ${at(token)[1]}`);
  const query = () => state.pointed.query ?? state.query;
  const weights = (token) => readers[state.picture].row(state.mode, state.layer, state.head, token);

  // ------------------------------------------------------------------------------------------------- drawing

  function fitted(canvas) {
    const context = sharpen(canvas);
    if (context) context.imageSmoothingEnabled = canvas.width < 2 * images[state.picture].naturalWidth;
    return context;
  }

  function outline(context, token, colour, points) {
    if (token >= prefix) drawFrame(context, cellBox(context.canvas, grid, token - prefix), colour, points);
  }

  function drawFrom() {
    const context = fitted($(".from canvas"));
    if (!context) return;
    context.drawImage(images[state.picture], 0, 0, context.canvas.width, context.canvas.height);
    context.fillStyle = "rgb(255 255 255 / 0.3)";
    for (let patch = 0; patch < patches; patch++) {
      const [x, y, w, h] = cellBox(context.canvas, grid, patch);
      if (x) context.fillRect(x, y, 1, h);
      if (y) context.fillRect(x, y, w, 1);
    }
    outline(context, state.query, colours.query, 3);
    if (query() !== state.query) outline(context, query(), colours.query, 2);
  }

  function drawTo(row, most, key) {
    const context = fitted($(".to canvas"));
    if (!context) return;
    const grey = greys[state.picture];
    const wide = grey.width / columns;
    const tall = grey.height / rows;
    const gap = Math.max(1, Math.round(context.canvas.width / columns / 24));
    for (let patch = 0; patch < patches; patch++) {
      const [x, y, w, h] = cellBox(context.canvas, grid, patch);
      const [top, left] = at(patch + prefix);
      const cell = [x + gap, y + gap, w - 2 * gap, h - 2 * gap];
      const share = row[patch + prefix] / most;
      context.drawImage(grey, left * wide, top * tall, wide, tall, ...cell);
      context.globalAlpha = (state.overlay / 100) ** (2 - share); // what isn't looked at shows more of the picture
      context.fillStyle = colourAt(data.heat, share);
      context.fillRect(...cell);
      context.globalAlpha = 1;
    }
    outline(context, query(), colours.query, 2);
    outline(context, key, colours.key, 3);
  }

  function drawSpecial(row, most, key) {
    special.forEach((label, token) => {
      const from = $(".from .special").children[token];
      const to = $(".to .special").children[token];
      from.dataset.mark = token === query() ? "query" : "";
      to.dataset.mark = token === key ? "key" : "";
      from.ariaPressed = token === state.query;
      to.ariaPressed = token === state.key;
      to.lastChild.textContent = `${label} ${percent(row[token])}`;
      const share = Math.min(row[token] / most, 1);
      to.firstChild.style.background = colourAt(data.heat, share);
      to.firstChild.style.color = share > 0.6 ? "#000000" : "#ffffff";
    });
  }

  // All heads of a layer: a pixel for each patch, each map from 0 to its own largest.
  const heat = pixelsOf(data.heat);
  function drawLayer(layer) {
    const width = heads * (columns + 1) - 1;
    const strip = new ImageData(width, rows);
    const pixels = new Uint32Array(strip.data.buffer);
    for (let head = 0; head < heads; head++) {
      const row = readers[state.picture].row("head", layer, head, query()).subarray(prefix);
      const most = largest(row);
      for (let patch = 0; patch < patches; patch++) {
        const across = head * (columns + 1) + (patch % columns);
        pixels[Math.floor(patch / columns) * width + across] = heat[Math.round((255 * row[patch]) / most)];
      }
    }
    $(".map canvas")
      .getContext("2d")
      .putImageData(strip, 0, layer * (rows + 1));
  }

  // What is decoded at once, then layer by layer: decoding all would hold up the pointer.
  let waiting = 0;
  function drawHeads() {
    const { decode, isDecoded } = readers[state.picture];
    const all = [...Array(layers).keys()];
    all.filter(isDecoded).forEach(drawLayer);
    clearTimeout(waiting);
    const next = all.find((layer) => !isDecoded(layer));
    if (next === undefined) return;
    waiting = setTimeout(() => {
      decode(next);
      drawHeads();
    }, 20);
  }

  // Around what of the small maps is shown large.
  function drawMark() {
    const canvas = $(".map canvas");
    const unit = canvas.clientWidth / canvas.width;
    const head = { head: [state.head, 1], mean: [0, heads], rollout: [0, heads] }[state.mode];
    const layer = { head: [state.layer, 1], mean: [state.layer, 1], rollout: [0, layers] }[state.mode];
    const frame = {
      left: head[0] * (columns + 1),
      width: head[1] * (columns + 1) - 1,
      top: layer[0] * (rows + 1),
      height: layer[1] * (rows + 1) - 1,
    };
    for (const [side, pixels] of Object.entries(frame)) $(".mark").style[side] = `${pixels * unit}px`;
  }

  function draw() {
    const row = weights(query());
    const most = largest(row.subarray(prefix));
    const key = state.pointed.key ?? state.key ?? ranked(row)[0];
    drawFrom();
    drawTo(row, most, key);
    drawSpecial(row, most, key);
    drawHeads();
    drawMark();
    $(".from .name").textContent = name(query());
    $(".from .place").textContent = place(query());
    $(".to .name").textContent = name(key);
    $(".to .place").textContent = place(key);
    $(".value").textContent = percent(row[key]);
    $(".most").textContent = `${percent(most)}, brightest patch`;
  }

  // ------------------------------------------------------------------------------------------------- controls

  // Changes anything but what is under the pointer.
  function change(changes) {
    Object.assign(state, changes);
    state.layer = clamp(state.layer, 0, layers - 1);
    state.head = clamp(state.head, 0, heads - 1);
    $(`[value="${state.mode}"]`).checked = true;
    const off = { layer: state.mode === "rollout" || layers === 1, head: state.mode !== "head" || heads === 1 };
    for (const input of root.querySelectorAll(".slider input")) {
      input.value = state[input.name];
      input.disabled = Boolean(off[input.name]);
      input.nextSibling.textContent = input.name === "overlay" ? `${state.overlay} %` : state[input.name];
    }
    draw();
    say();
  }

  // To a screen reader, and never while pointing.
  function say() {
    const { mode, layer, head, key } = state;
    const row = weights(state.query);
    const shown = mode === "head" ? `head ${head}` : "mean of heads";
    const where = mode === "rollout" ? "rollout" : `layer ${layer}, ${shown}`;
    const keys = key === null ? ranked(row).slice(0, 3) : [key];
    const found = keys.map((token) => `${name(token)} ${place(token)} ${percent(row[token])}`).join("; ");
    $(".spoken").textContent = `${where}: ${name(state.query)} ${place(state.query)} looks at ${found}`;
    $(".map canvas").ariaLabel = `Small maps of all layers and heads; shown: ${where}`;
  }

  // The token that a key leads to; those before the patches are above them.
  function step(token, key) {
    if (key === "Home") return 0;
    if (key === "End") return tokens - 1;
    const [down, right] = ARROWS[key];
    if (token < prefix) return down > 0 ? prefix : clamp(token + right, 0, prefix - 1);
    const [row, column] = at(token);
    if (row + down < 0 && prefix) return 0;
    return prefix + clamp(row + down, 0, rows - 1) * columns + clamp(column + right, 0, columns - 1);
  }

  function picker(panel, role) {
    const canvas = $(`.${panel} canvas`);

    function point(token) {
      if (state.pointed[role] === token) return;
      state.pointed[role] = token;
      draw();
    }

    function watch(element, tokenOf) {
      element.addEventListener("pointermove", (event) => point(tokenOf(event)));
      element.addEventListener("pointerleave", () => point(null));
      element.addEventListener("click", (event) => {
        const clicked = tokenOf(event);
        const isKept = role === "key" && clicked === state.key; // a second click on a key lets it go
        change({ [role]: isKept ? null : clicked });
      });
    }

    watch(canvas, (event) => prefix + cellUnder(canvas, grid, event));
    specialButtons(data.special).forEach((button, token) => {
      $(`.${panel} .special`).append(button);
      watch(button, () => token);
    });
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Escape") change({ key: null });
      if (hasModifier(event) || !(event.key in ARROWS || event.key === "Home" || event.key === "End")) return;
      event.preventDefault();
      state.pointed = { query: null, key: null }; // a pointer at rest gives way
      change({ [role]: step(state[role] ?? ranked(weights(state.query))[0], event.key) });
    });
  }

  function choose(picture) {
    const { top, title } = pictures[picture];
    $(".answers").classList.toggle("hidden", !top.length);
    $(".title").textContent = title;
    const items = top.map(([label, share]) => {
      const number = make("span", { textContent: `${(100 * share).toFixed(1)} %` });
      const item = make("li", {}, make("span", { textContent: label, title: label }), number);
      item.style.setProperty("--share", `${100 * share}%`);
      return item;
    });
    $(".answers ol").replaceChildren(...items);
    change({ picture });
  }

  function build() {
    images.forEach(({ src, alt, naturalWidth, naturalHeight }, picture) => {
      const input = make("input", { type: "radio", name: "picture", checked: !picture });
      input.onchange = () => choose(picture);
      $(".thumbs").append(make("label", {}, input, make("img", { src, alt, title: alt })));
      host.style.setProperty("--ratio", naturalWidth / naturalHeight);
    });
    $(".thumbs").classList.toggle("hidden", pictures.length < 2);
    if (!prefix) $(".from .note").append(" The model has no class token: it averages the patches.");
    const map = $(".map canvas");
    map.width = heads * (columns + 1) - 1;
    map.height = layers * (rows + 1) - 1;
    const enlarged = Math.max(1, Math.floor(Math.min(200 / map.width, 320 / map.height))); // whole pixels
    map.style.width = `${map.width * enlarged}px`;
    const stops = Array.from({ length: 9 }, (_, i) => colourAt(data.heat, i / 8));
    $(".scale i").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  }

  function wire() {
    picker("from", "query");
    picker("to", "key");
    $('[name="layer"]').max = layers - 1;
    $('[name="head"]').max = heads - 1;
    for (const input of root.querySelectorAll(".slider input")) {
      input.oninput = () => change({ [input.name]: Number(input.value) });
    }
    for (const input of root.querySelectorAll(".modes input")) input.onchange = () => change({ mode: input.value });
    $(".map canvas").onclick = ({ offsetX, offsetY, target }) => {
      const layer = Math.floor((offsetY / target.clientHeight) * layers);
      const head = Math.floor((offsetX / target.clientWidth) * heads);
      change({ mode: "head", layer, head });
    };
    $(".explorer").addEventListener("keydown", (event) => {
      if (!event.shiftKey || !(event.key in ARROWS)) return;
      const [down, right] = ARROWS[event.key];
      const what = down ? "layer" : "head";
      if ($(`[name="${what}"]`).disabled) return;
      event.preventDefault();
      change({ [what]: state[what] + down + right });
    });
    new ResizeObserver(draw).observe($(".from canvas"));
  }

  build();
  wire();
  choose(0);
}

begin("explorer", start);
