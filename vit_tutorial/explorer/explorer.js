  // ------------------------------------------------------------------------------------------------- the explorer

  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const largest = (row) => row.reduce((most, weight) => Math.max(most, weight), 1e-12);
  const ranked = (row) => [...row.keys()].sort((a, b) => row[b] - row[a] || a - b);

  // The weights of one picture. A layer is decoded when it is first asked for; the chunk after the last is the rollout.
  function reader(picture, layers, heads, tokens) {
    const packed = [...picture.layers, picture.rollout], chunks = [];
    const decode = (index) => {
      if (!chunks[index]) {
        const { values, most } = packed[index];
        chunks[index] = { values: bytes(values), most: new Float32Array(bytes(most).buffer) };
      }
      return chunks[index];
    };
    const row = (mode, layer, head, query) => { // (T,): where the query looks
      const { values, most } = decode(mode === "rollout" ? layers : layer), out = new Float64Array(tokens);
      const chosen = { rollout: [0], head: [head], mean: [...Array(heads).keys()] }[mode];
      for (const h of chosen) {
        const line = h * tokens + query, scale = most[line] / 255 / chosen.length;
        for (let t = 0; t < tokens; t++) out[t] += scale * values[line * tokens + t];
      }
      return out;
    };
    return { row, decode, decoded: (layer) => Boolean(chunks[layer]) };
  }

  // A copy without colour: heat on it can be read.
  function greyed(image) {
    const canvas = make("canvas", { width: image.naturalWidth, height: image.naturalHeight });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height), p = pixels.data;
    for (let i = 0; i < p.length; i += 4) p[i] = p[i + 1] = p[i + 2] = (p[i] + p[i + 1] + p[i + 2]) / 3;
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  function start(host, root) {
    const data = JSON.parse(host.querySelector('script[type="application/json"]').textContent);
    const images = [...host.querySelectorAll("img")], greys = images.map(greyed);
    root.innerHTML = host.querySelector('script[type="text/template"]').textContent;
    const $ = (selector) => root.querySelector(selector);
    const { special, layers, heads, pictures } = data, [rows, columns] = data.grid;
    const prefix = special.length, patches = rows * columns, tokens = prefix + patches;
    const readers = pictures.map((picture) => reader(picture, layers, heads, tokens));
    const heat = (share) => `#${data.heat.slice(6 * Math.round(255 * share)).slice(0, 6)}`;
    const [queryColour, keyColour] = ["--query", "--key"].map((role) => getComputedStyle(host).getPropertyValue(role));
    const state = {
      picture: 0, mode: "head", layer: layers - 1, head: 0, overlay: 70,
      query: prefix ? 0 : Math.floor(rows / 2) * columns + Math.floor(columns / 2),
      key: null, // the one whose weight is read; null: the one looked at most
      pointed: { query: null, key: null }, // under the pointer, instead of the chosen ones
    };

    const at = (token) => [Math.floor((token - prefix) / columns), (token - prefix) % columns]; // row, column
    const name = (token) => special[token] ?? `patch ${token - prefix}`;
    const place = (token) => (token < prefix ? "" : `row ${at(token)[0]}, column ${at(token)[1]}`);
    const query = () => state.pointed.query ?? state.query;
    const weights = (token) => readers[state.picture].row(state.mode, state.layer, state.head, token);

    // ------------------------------------------------------------------------------------------------- drawing

    function fitted(canvas) { // as many pixels as the screen has there
      const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
      const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.round(side * ratio));
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      context.clearRect(0, 0, width, height);
      context.imageSmoothingEnabled = width < 2 * images[state.picture].naturalWidth;
      return context;
    }

    function box({ width, height }, token) { // left, top, width, height in whole pixels, so that cells meet
      const [row, column] = at(token);
      const [left, right] = [column, column + 1].map((i) => Math.round((i * width) / columns));
      const [top, bottom] = [row, row + 1].map((i) => Math.round((i * height) / rows));
      return [left, top, right - left, bottom - top];
    }

    function outline(context, token, colour, points) {
      if (token < prefix) return;
      const [x, y, w, h] = box(context.canvas, token), line = points * (window.devicePixelRatio || 1);
      for (const [strokeStyle, lineWidth] of [["#ffffff", 1.6 * line], [colour, line]]) {
        Object.assign(context, { strokeStyle, lineWidth });
        context.strokeRect(x + line / 2, y + line / 2, w - line, h - line);
      }
    }

    function drawFrom() {
      const context = fitted($(".from canvas")), { width, height } = context.canvas;
      context.drawImage(images[state.picture], 0, 0, width, height);
      context.fillStyle = "rgb(255 255 255 / 0.3)";
      for (let token = prefix; token < tokens; token++) {
        const [x, y, w, h] = box(context.canvas, token);
        if (x) context.fillRect(x, y, 1, h);
        if (y) context.fillRect(x, y, w, 1);
      }
      outline(context, state.query, queryColour, 3);
      if (query() !== state.query) outline(context, query(), queryColour, 2);
    }

    function drawTo(row, most, key) {
      const context = fitted($(".to canvas")), grey = greys[state.picture], overlay = state.overlay / 100;
      const gap = Math.max(1, Math.round(context.canvas.width / columns / 24));
      for (let token = prefix; token < tokens; token++) {
        const [x, y, w, h] = box(context.canvas, token), share = row[token] / most;
        const [top, left] = at(token), [pw, ph] = [grey.width / columns, grey.height / rows];
        const cell = [x + gap, y + gap, w - 2 * gap, h - 2 * gap];
        context.drawImage(grey, left * pw, top * ph, pw, ph, ...cell);
        context.globalAlpha = overlay ** (2 - share); // what isn't looked at shows more of the picture
        context.fillStyle = heat(share);
        context.fillRect(...cell);
        context.globalAlpha = 1;
      }
      outline(context, query(), queryColour, 2);
      outline(context, key, keyColour, 3);
    }

    function drawSpecial(row, most, key) {
      special.forEach((label, token) => {
        const [from, to] = ["from", "to"].map((panel) => $(`.${panel} .special`).children[token]);
        from.dataset.mark = token === query() ? "query" : "";
        to.dataset.mark = token === key ? "key" : "";
        from.ariaPressed = token === state.query;
        to.ariaPressed = token === state.key;
        to.lastChild.textContent = `${label} ${percent(row[token])}`;
        const share = Math.min(row[token] / most, 1);
        to.firstChild.style.background = heat(share);
        to.firstChild.style.color = share > 0.6 ? "#000000" : "#ffffff";
      });
    }

    // All heads of a layer: a pixel a patch, each map from 0 to its own largest.
    const colours = Uint32Array.from({ length: 256 }, (_, i) => {
      const [red, green, blue] = [0, 2, 4].map((at) => parseInt(data.heat.slice(6 * i + at, 6 * i + at + 2), 16));
      return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
    function drawLayer(layer) {
      const width = heads * (columns + 1) - 1, strip = new ImageData(width, rows);
      const pixels = new Uint32Array(strip.data.buffer);
      for (let head = 0; head < heads; head++) {
        const row = readers[state.picture].row("head", layer, head, query()).subarray(prefix), most = largest(row);
        for (let patch = 0; patch < patches; patch++) {
          const across = head * (columns + 1) + (patch % columns);
          pixels[Math.floor(patch / columns) * width + across] = colours[Math.round((255 * row[patch]) / most)];
        }
      }
      $(".map canvas").getContext("2d").putImageData(strip, 0, layer * (rows + 1));
    }

    let waiting = 0;
    function drawHeads() { // what is decoded at once, then layer by layer: decoding all would hold up the pointer
      const { decode, decoded } = readers[state.picture], all = [...Array(layers).keys()];
      all.filter(decoded).forEach(drawLayer);
      clearTimeout(waiting);
      const next = all.find((layer) => !decoded(layer));
      if (next !== undefined) waiting = setTimeout(() => { decode(next); drawHeads(); }, 20);
    }

    function drawMark() { // around what of the small maps is shown large
      const canvas = $(".map canvas"), unit = canvas.clientWidth / canvas.width;
      const [left, wide] = state.mode === "head" ? [state.head, 1] : [0, heads];
      const [top, tall] = state.mode === "rollout" ? [0, layers] : [state.layer, 1];
      const frame = { left: left * (columns + 1), width: wide * (columns + 1) - 1,
        top: top * (rows + 1), height: tall * (rows + 1) - 1 };
      for (const [side, pixels] of Object.entries(frame)) $(".mark").style[side] = `${pixels * unit}px`;
    }

    function draw() {
      const row = weights(query()), most = largest(row.subarray(prefix));
      const key = state.pointed.key ?? state.key ?? ranked(row)[0];
      drawFrom();
      drawTo(row, most, key);
      drawSpecial(row, most, key);
      drawHeads();
      drawMark();
      for (const [panel, token] of [["from", query()], ["to", key]]) {
        $(`.${panel} .name`).textContent = name(token);
        $(`.${panel} .place`).textContent = place(token);
      }
      $(".value").textContent = percent(row[key]);
      $(".most").textContent = `${percent(most)}, brightest patch`;
    }

    // ------------------------------------------------------------------------------------------------- controls

    function change(changes) { // of anything but what is under the pointer
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

    function say() { // to a screen reader, and never while pointing
      const { mode, layer, head, key } = state, row = weights(state.query);
      const heads = mode === "head" ? `head ${head}` : "mean of heads";
      const where = mode === "rollout" ? "rollout" : `layer ${layer}, ${heads}`;
      const keys = key === null ? ranked(row).slice(0, 3) : [key];
      const found = keys.map((token) => `${name(token)} ${place(token)} ${percent(row[token])}`).join("; ");
      $(".spoken").textContent = `${where}: ${name(state.query)} ${place(state.query)} looks at ${found}`;
      $(".map canvas").ariaLabel = `Small maps of all layers and heads; shown: ${where}`;
    }

    function step(token, key) { // where a key leads; the class token stands above the patches
      if (key === "Home" || key === "End") return key === "Home" ? 0 : tokens - 1;
      const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
      if (token < prefix) return down > 0 ? prefix : clamp(token + right, 0, prefix - 1);
      const [row, column] = at(token);
      if (row + down < 0 && prefix) return 0;
      return prefix + clamp(row + down, 0, rows - 1) * columns + clamp(column + right, 0, columns - 1);
    }

    function picker(panel, role) {
      const canvas = $(`.${panel} canvas`);
      const under = ({ clientX, clientY }) => {
        const { left, top, width, height } = canvas.getBoundingClientRect();
        const row = clamp(Math.floor(((clientY - top) / height) * rows), 0, rows - 1);
        return prefix + row * columns + clamp(Math.floor(((clientX - left) / width) * columns), 0, columns - 1);
      };
      const point = (token) => { if (state.pointed[role] !== token) { state.pointed[role] = token; draw(); } };
      const watch = (element, token) => {
        element.addEventListener("pointermove", (event) => point(token(event)));
        element.addEventListener("pointerleave", () => point(null));
        element.addEventListener("click", (event) => { // a second click on a key lets it go
          const clicked = token(event);
          change({ [role]: role === "key" && clicked === state.key ? null : clicked });
        });
      };
      watch(canvas, under);
      special.forEach((label, token) => {
        const cell = make("i", { textContent: label === "class token" ? "CLS" : "DIST", ariaHidden: "true" });
        const button = make("button", { type: "button" }, cell, make("span", { textContent: label }));
        $(`.${panel} .special`).append(button);
        watch(button, () => token);
      });
      canvas.addEventListener("keydown", (event) => {
        if (event.key === "Escape") change({ key: null });
        if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
        if (!/^(Arrow(Up|Down|Left|Right)|Home|End)$/.test(event.key)) return;
        event.preventDefault();
        state.pointed = { query: null, key: null }; // a pointer at rest gives way
        change({ [role]: step(state[role] ?? ranked(weights(state.query))[0], event.key) });
      });
    }

    function choose(picture) {
      const { top, title } = pictures[picture];
      $(".answers").classList.toggle("hidden", !top.length);
      $(".title").textContent = title;
      $(".answers ol").replaceChildren(...top.map(([label, share]) => {
        const number = make("span", { textContent: `${(100 * share).toFixed(1)} %` });
        const item = make("li", {}, make("span", { textContent: label, title: label }), number);
        item.style.setProperty("--share", `${100 * share}%`);
        return item;
      }));
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
      const map = $(".map canvas"), [width, height] = [heads * (columns + 1) - 1, layers * (rows + 1) - 1];
      Object.assign(map, { width, height });
      map.style.width = `${width * Math.max(1, Math.floor(Math.min(200 / width, 320 / height)))}px`; // whole pixels
      const stops = Array.from({ length: 9 }, (_, i) => heat(i / 8));
      $(".scale i").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    }

    function wire() {
      picker("from", "query");
      picker("to", "key");
      $('[name="layer"]').max = layers - 1;
      $('[name="head"]').max = heads - 1;
      for (const input of root.querySelectorAll(".slider input"))
        input.oninput = () => change({ [input.name]: Number(input.value) });
      for (const input of root.querySelectorAll(".modes input")) input.onchange = () => change({ mode: input.value });
      $(".map canvas").onclick = ({ offsetX, offsetY, target }) => change({
        mode: "head",
        layer: Math.floor((offsetY / target.clientHeight) * layers),
        head: Math.floor((offsetX / target.clientWidth) * heads),
      });
      const steps = { Up: ["layer", -1], Down: ["layer", 1], Left: ["head", -1], Right: ["head", 1] };
      $(".explorer").addEventListener("keydown", (event) => {
        const [what, by] = (event.shiftKey && steps[event.key.replace("Arrow", "")]) || [];
        if (!what || $(`[name="${what}"]`).disabled) return;
        event.preventDefault();
        change({ [what]: state[what] + by });
      });
      new ResizeObserver(draw).observe($(".from canvas"));
    }

    build();
    wire();
    choose(0);
  }

  begin("explorer", start);
