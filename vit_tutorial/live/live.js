
  // ------------------------------------------------------------------------------------------------- the page

  const STATIONS = { patches: "1 Patches", embedding: "2 Embedding", positions: "3 Positions", attention: "4a Attention",
    mlp: "4b MLP", head: "5 Head", layers: "Layer by layer", "what-if": "What if?" };
  const WITH_LAYER = ["attention", "mlp"], WITH_HEAD = ["attention"];
  const SLICE = 12; // milliseconds of computing at a time: a frame has 17
  const nextFrame = () => new Promise(requestAnimationFrame);
  const NOTHING = { off: [], scale: true, temperature: 1, position: "learned", answer: 1, order: null, hidden: [] };

  // The guided tour: where each stop is, what lights up, which token is followed, and a sentence; no sentence, no stop.
  const TOUR = [
    ["patches", ".pad canvas", "patch", ({ draws }) => draws
      ? "Press Clear and draw a digit here, or choose one below: the model’s answer follows while you draw."
      : "Choose a picture below, or drop one of your own: the model’s answer stands beside it. You may also paint on it."],
    ["patches", ".picker canvas", "patch", ({ N, stem }) => `${stem ? "The picture is cut into" : "The model never sees the whole picture: it sees"} ${N} small patches. Click one.`],
    ["patches", "[data-spot=flat]", "patch", ({ length, C }) => `A patch is just ${length} numbers in a row, one for each pixel${C > 1 ? " and colour" : ""}.`],
    ["embedding", "[data-spot=token]", "patch", ({ D, stem }) => `${stem ? "This model first looks at the picture through small filters. A learned matrix turns what they find in a patch" : "A learned matrix turns every patch"} into ${D} numbers. This list is called a token: it is what the model works on from here.`],
    ["positions", "[data-spot=position]", "patch", () => "The list doesn’t say where the patch was, so a learned list for its place is added."],
    ["positions", ".special", "class", ({ prefix }) => prefix && "One more token comes first, the class token. It belongs to no patch: it will collect the answer, so from here we follow it."],
    ["attention", "[data-spot=qkv]", "class", () => "Now tokens talk to each other. From every token come three lists: a query (what it looks for), a key (what it has) and a value (what it would tell)."],
    ["attention", "[data-spot=weights]", "class", ({ prefix }) => `Where the query fits a key, the score is high. Softmax makes shares of 100 % of the scores: this is where the ${prefix ? "class " : ""}token looks.`],
    ["attention", "[data-spot=sums]", "class", ({ h }) => `It takes over the values of what it looks at, in these shares. ${h} heads do this side by side, each in its own way: choose another one under “Head”.`],
    ["mlp", "[data-spot=hidden]", "class", ({ M }) => `Then every token works alone: ${M} hidden units, each switched on by something it has learned to find.`],
    ["layers", "[data-spot=lens]", "class", ({ L }) => `Attention and MLP make a block, and there are ${L}. Here is what the answer would be after each of them.`],
    ["head", "[data-spot=probabilities]", "class", ({ prefix }) => `Last comes the model’s own head, which has only its name in common with the heads of attention: it turns ${prefix ? "the class token" : "the mean of all tokens"} into one score for each class, and softmax turns the scores into probabilities.`],
    ["what-if", "[data-spot=switches]", "patch", () => "Is all of this needed? Switch a part off, shuffle the patches, take the positions away, and watch the answer."],
    ["what-if", "[data-spot=matters]", "patch", () => "Which head matters for this picture? Let the page try each of them. After that, walk where you like."],
  ];

  function start(host, root) {
    const data = JSON.parse(host.querySelector('script[type="application/json"]').textContent);
    root.innerHTML = host.querySelector('script[type="text/template"]').textContent;
    const $ = (selector) => root.querySelector(selector), $$ = (selector) => [...root.querySelectorAll(selector)];
    const { config, classes } = data, weights = unpack(data.weights), [C, H, W] = config.shape;
    const { dim: D, depth: L, num_heads: h, mlp_dim: M, tokens: T, prefix, patches: N } = config, [rows, columns] = config.grid, d = D / h;
    const levels = bytes(data.samples.values), white = data.samples.white, size = C * H * W;
    const samples = Array.from({ length: data.samples.count }, (_, i) => Float32Array.from(levels.subarray(i * size, (i + 1) * size), (v) => v / white));
    const id = [...data.weights.values.slice(-4000)].reduce((hash, letter) => (31 * hash + letter.charCodeAt(0)) >>> 0, 7).toString(36);
    const middle = prefix + Math.floor(rows / 2) * columns + Math.floor(columns / 2); // a patch
    const state = { picture: samples[0], sample: 0, changes: { ...NOTHING }, station: "patches", stop: 0,
      token: middle, layer: 0, head: 0, row: 0, read: null, swapping: false };
    const past = []; // pictures and changes to go back to
    const say = (text) => { $(".live-region").textContent = text; };

    const at = (token) => [Math.floor((token - prefix) / columns), (token - prefix) % columns]; // row, column
    const tokenName = (token) => (token < prefix ? ["class token", "distillation token"][token] : `patch ${token - prefix}`);
    const placeOf = (token) => (token < prefix ? "before the patches" : `row ${at(token)[0]}, column ${at(token)[1]}`);
    const isChanged = (changes) => JSON.stringify(changes) !== JSON.stringify(NOTHING);

    // ------------------------------------------------------------------------------------------------- computing it

    const pass = (picture, changes = {}) => vit(normalise(rearrange(picture, data, changes), data), weights, config, changes);
    const run = (picture, changes) => finish(pass(picture, changes));

    let now, before, of = {}; // what the page shows: a pass, another of the model as it was trained, and what both are of
    function* bothPasses({ picture, changes }) {
      const plain = of.picture === picture ? before : yield* pass(picture);
      return { now: isChanged(changes) ? yield* pass(picture, changes) : plain, before: plain, of: { picture, changes } };
    }

    // A pass may take longer than a frame: so it is made in slices, and between them the page draws and hears the reader.
    async function inSlices(steps, isWanted) { // null: it wasn't wanted any more
      for (let start = performance.now(); ;) {
        const { done, value } = steps.next();
        if (done) return value;
        if (performance.now() - start < SLICE) continue;
        await nextFrame();
        if (!isWanted()) return null;
        start = performance.now();
      }
    }

    // Until the page shows the newest picture and changes. A pass for older ones is given up, but not while a line is
    // drawn: it shows where the pen was a moment ago, and without it nothing would be seen before the pen is lifted.
    let drawing = false, catching = null; // the promise of one that is under way
    const isNewest = ({ picture, changes }) => picture === state.picture && changes === state.changes;
    async function catchUp() {
      while (!isNewest(of)) await (catching ??= catchUpOnce().finally(() => { catching = null; }));
      $(".answer").ariaBusy = "false";
    }
    async function catchUpOnce() {
      $(".answer").ariaBusy = "true";
      if (drawing) await nextFrame();
      const wanted = { picture: state.picture, changes: state.changes };
      const found = await inSlices(bothPasses(wanted), () => drawing || isNewest(wanted));
      if (!found) return;
      ({ now, before, of } = found);
      draw();
    }

    function remember() {
      past.push({ picture: state.picture, sample: state.sample, changes: state.changes, ink: pad.ink() });
      if (past.length > 200) past.shift();
    }

    async function change(changes) { // of the model or the patches
      remember();
      state.changes = { ...state.changes, ...changes };
      drawPicker();
      drawSwitches();
      await catchUp();
      say(`${$(".list").textContent || "As trained"}. ${spokenAnswer()}`);
    }

    const spokenAnswer = () => `It says ${classes[best(now)]}, ${percent(now.probabilities[best(now)])}`;
    const best = ({ probabilities }) => probabilities.indexOf(Math.max(...probabilities));

    async function choosePicture(picture, sample = -1) {
      if (picture !== state.picture) remember();
      Object.assign(state, { picture, sample });
      $(".message").textContent = "";
      forgetTried();
      pad.show(picture);
      drawPicker();
      await catchUp();
      say(spokenAnswer());
    }

    // ------------------------------------------------------------------------------------------------- drawing it

    const model = { follow: (row) => { if (row !== state.row) { state.row = row; draw(); } }, row: () => state.row };
    const scene = () => {
      const block = now.blocks[state.layer], patch = Math.max(state.token - prefix, 0);
      return { run: now, weights, data, changes: of.changes, picture: rearrange(of.picture, data, of.changes), token: state.token, layer: state.layer, patch,
        block, one: block.attention.heads[state.head], D, d, M, T, model, tokenName, clicked: chooseToken,
        across: (c) => (C === 3 ? `${["red", "green", "blue"][c]}, ` : C > 1 ? `channel ${c}, ` : "") };
    };

    const labelOf = (sample) => (classes.includes(data.titles[sample]) ? `its label: ${data.titles[sample]}` : data.titles[sample] ?? "");
    const slots = []; // [element, what it shows]
    function build() {
      $$(config.stem ? ".plain" : ".stem").forEach((element) => element.remove());
      for (const place of $$("[data-show]")) {
        const label = place.parentElement.querySelector("h4").textContent.trim(), view = cells(place, label, data, say);
        slots.push([place, (s) => view.show(SHOWN[place.dataset.show](s))]);
      }
      for (const place of $$("[data-map]")) {
        const label = place.parentElement.querySelector("h4").textContent.trim() || "Scaled scores", view = tokenMap(place, label, data, say);
        slots.push([place, (s) => view.show({ ...MAPS[place.dataset.map](s), tokenName, clicked: chooseToken })]);
      }
      for (const place of $$("[data-text]")) if (TEXTS[place.dataset.text]) slots.push([place, (s) => { place.textContent = TEXTS[place.dataset.text](s); }]);
      const names = classes.length <= 12 ? `one of these: ${classes.join(", ")}` : `one of ${classes.length.toLocaleString("en")} names`;
      $(".sizes").textContent = `It has ${config.parameters.toLocaleString("en")} learned numbers, and to whatever it is shown it answers with ${names}.`;
    }

    function draw() {
      drawAnswer();
      drawPicker();
      $$(".of-patch").forEach((element) => element.classList.toggle("hidden", state.token < prefix));
      $$(".of-class").forEach((element) => element.classList.toggle("hidden", state.token >= prefix));
      const s = scene();
      for (const [place, show] of slots) if (place.closest(".station").dataset.station === state.station) show(s);
      if (state.station === "attention") drawHeads();
      if (state.station === "layers") drawLens();
      if (state.station === "what-if") drawSwitches();
    }

    function drawAnswer() {
      const order = classes.length <= 12 ? [...classes.keys()] : [...classes.keys()].sort((a, b) => now.probabilities[b] - now.probabilities[a]).slice(0, 8);
      const bars = $(".bars");
      if (bars.childElementCount !== order.length) {
        bars.replaceChildren(...order.map(() => make("li", {}, make("span"), make("i"), make("b"))));
      }
      const top = best(now), changed = isChanged(of.changes);
      order.forEach((k, i) => {
        const [label, bar, number] = bars.children[i].children, share = now.probabilities[k], old = before.probabilities[k];
        Object.assign(label, { textContent: classes[k], title: classes[k] });
        number.textContent = percent(share);
        bar.style.setProperty("--share", `${100 * share}%`);
        bar.style.setProperty("--before", changed ? `${100 * old}%` : "-10%");
        bars.children[i].className = k === top ? "top" : "";
      });
      $(".said").textContent = `${classes[top]}, ${percent(now.probabilities[top])}`;
      $(".mini").textContent = `It says ${$(".said").textContent.replaceAll(" ", "\u00a0")}`; // breaks after "says" alone
      $(".changed").classList.toggle("hidden", !changed);
      $(".list").textContent = changed ? `${describe(of.changes).join("; ")}.` : "";
      const was = best(before), [a, b] = [before.probabilities[was], now.probabilities[was]];
      $(".difference").textContent = `${classes[was]} was ${percent(a)} and is ${percent(b)}${was === top ? "" : `; now it says ${classes[top]}`}.`;
      if (isInvisible(of.changes)) $(".difference").textContent += " The patches moved, but without positions it can’t tell: moved or in place, it says the same.";
      $(".pad .hint").textContent = state.sample < 0 ? C === 1 ? "· draw on it" : "· paint on it, or drop one" : `· ${labelOf(state.sample)}`;
      $('[data-do="undo"]').disabled = !past.length;
      $('[data-do="reset"]').disabled = !isChanged(state.changes);
    }

    // A new order of all patches, in a model to which they are a bag.
    const isInvisible = ({ position, order, hidden }) => position === "none" && order && new Set(order).size === N && !hidden.length && !config.stem;

    function describe({ off, scale, temperature, position, answer, order, hidden }) {
      const words = off.map(partName);
      if (!scale) words.push("scores not divided by √d");
      if (temperature !== 1) words.push(`attention’s temperature ${temperature}`);
      if (position !== "learned") words.push(position === "none" ? "no positions" : "positions reversed");
      if (answer !== 1) words.push(`the answer’s temperature ${answer}`);
      if (order) words.push("patches moved");
      if (hidden.length) words.push(`${hidden.length === 1 ? `patch ${hidden[0]}` : `${hidden.length} patches`} hidden`);
      return words;
    }

    function partName(name) { // blocks.1.attention.heads.0 -> head 0 of block 1 off
      const [, layer, part, inner, head] = name.split(".");
      if (!part) return `block ${layer} off`;
      if (inner === "heads") return `head ${head} of block ${layer} off`;
      const what = part === "mlp" ? "MLP" : "attention";
      return inner ? `the shortcut beside the ${what} of block ${layer} off` : `${what} of block ${layer} off`;
    }

    const seen = new OffscreenCanvas(W, H);
    function drawPicker() {
      const canvas = $(".picker canvas"), ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
      const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.round(side * ratio));
      if (!width) return;
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      paint(seen, rearrange(state.picture, data, state.changes), config.shape);
      context.clearRect(0, 0, width, height);
      context.imageSmoothingEnabled = false;
      const gap = Math.max(1, Math.round(width / columns / 24)), [P, Q] = config.patch_size;
      for (let n = 0; n < N; n++) {
        const [y, x] = at(n + prefix), [left, right] = [x, x + 1].map((i) => Math.round((i * width) / columns));
        const [top, bottom] = [y, y + 1].map((i) => Math.round((i * height) / rows));
        context.drawImage(seen, x * Q, y * P, Q, P, left + gap, top + gap, right - left - 2 * gap, bottom - top - 2 * gap);
        if (n + prefix !== state.token) continue;
        for (const [strokeStyle, lineWidth] of [["#ffffff", 5 * ratio], [data.blue, 3 * ratio]]) {
          Object.assign(context, { strokeStyle, lineWidth });
          context.strokeRect(left + 2 * ratio, top + 2 * ratio, right - left - 4 * ratio, bottom - top - 4 * ratio);
        }
      }
      $(".picker .name").textContent = tokenName(state.token);
      $(".picker .place").textContent = placeOf(state.token);
      [...$(".special").children].forEach((button, token) => { button.ariaPressed = String(token === state.token); });
    }

    function chooseToken(token) {
      if (state.swapping && token >= prefix && state.token >= prefix) {
        const order = state.changes.order?.slice() ?? [...Array(N).keys()], [a, b] = [state.token - prefix, token - prefix];
        [order[a], order[b]] = [order[b], order[a]];
        state.swapping = false;
        change({ order });
      }
      Object.assign(state, { token, swapping: false });
      $(".picker .note:last-child").textContent = "Click a patch to follow it. Counting begins at 0.";
      draw();
      say(`${tokenName(token)}, ${placeOf(token)}`);
    }

    function drawHeads() { // where the chosen token looks, in each head
      $$(".heads canvas").forEach((canvas, head) => {
        const row = rowOf(now.blocks[state.layer].attention.heads[head].weights, state.token, T).subarray(prefix);
        const most = row.reduce((a, b) => Math.max(a, b), 1e-12), image = new ImageData(columns, rows);
        row.forEach((share, n) => {
          const rgb = parseInt(data.heat.slice(6 * Math.round((255 * share) / most)).slice(0, 6), 16);
          image.data.set([rgb >> 16, (rgb >> 8) & 255, rgb & 255, 255], 4 * n);
        });
        Object.assign(canvas, { width: columns, height: rows });
        canvas.getContext("2d").putImageData(image, 0, 0);
      });
    }

    function drawLens() {
      const steps = lens(now, weights, config), place = $(".lens"), top = best(now);
      const names = ["after the embedding", ...now.blocks.map((_, layer) => `after block ${layer}`)];
      place.replaceChildren(...steps.map(({ answer }, step) => {
        const order = [...answer.keys()].sort((a, b) => answer[b] - answer[a]).slice(0, 3);
        const bars = order.map((k) => {
          const bar = make("span", { className: k === top ? "chip top" : "chip" }, make("b", { textContent: classes[k] }), ` ${percent(answer[k])}`);
          bar.style.setProperty("--share", `${100 * answer[k]}%`);
          return bar;
        });
        return make("div", { className: "lens-row" }, make("span", { className: "when", textContent: names[step] }), ...bars);
      }));
      const select = $(".patch-lens select"), k = state.read ?? top;
      $(".patch-lens").classList.toggle("hidden", !steps[0].tokens);
      if (!steps[0].tokens) return;
      select.value = k;
      patchMaps.forEach((view, step) => {
        const values = Float32Array.from({ length: N }, (_, n) => steps[step].tokens[(n + prefix) * classes.length + k]);
        view.show({ values, columns, colours: "heat", most: 1, square: true, name: (i) => `${names[step]}, patch ${i} as ${classes[k]}`, clicked: (i) => chooseToken(i + prefix) });
      });
    }
    let patchMaps = [];

    function drawSwitches() {
      const off = new Set(state.changes.off);
      for (const button of $$(".switches button")) button.ariaPressed = String(!off.has(button.dataset.part));
      const { scale, position, temperature, answer } = state.changes;
      $('[name="scale"]').checked = scale;
      $(`[name="position"][value="${position}"]`).checked = true;
      for (const [name, value] of [["temperature", temperature], ["answer", answer]]) {
        const input = $(`[name="${name}"]`);
        input.value = Math.round(10 * Math.log10(value));
        input.nextSibling.textContent = value;
      }
      for (const name of ["hide", "swap", "repeat"]) $(`[data-do="${name}"]`).disabled = state.token < prefix;
      const hidden = state.changes.hidden.includes(state.token - prefix);
      $('[data-do="hide"]').textContent = hidden ? "Show the chosen patch" : "Hide the chosen patch";
      $('[data-do="restore"]').disabled = !state.changes.order && !state.changes.hidden.length;
    }

    // ------------------------------------------------------------------------------------------------- which part matters?

    let trying = 0; // how often something was tried: whoever is not the last gives up
    async function tryEach(kind) {
      const mine = ++trying;
      await catchUp();
      const k = best(now), was = now.probabilities[k], { picture, changes } = of;
      const blocks = [...Array(L).keys()], parts = {
        heads: () => blocks.flatMap((layer) => Array.from({ length: h }, (_, head) => ({ off: `blocks.${layer}.attention.heads.${head}`, name: `head ${head}` }))),
        parts: () => blocks.flatMap((layer) => [{ off: `blocks.${layer}.attention`, name: "attention" }, { off: `blocks.${layer}.mlp`, name: "MLP" }]),
        patches: () => Array.from({ length: N }, (_, hide) => ({ hide })),
      }[kind](), falls = []; // how far the answer falls without each, in points of a hundred
      function* tryAll() {
        for (const { off, hide } of parts) {
          const without = off ? { off: [...changes.off, off] } : { hidden: [...changes.hidden, hide] };
          const { probabilities } = yield* pass(picture, { ...changes, ...without });
          falls.push(100 * (was - probabilities[k]));
          $('[data-text="tried"]').textContent = `${falls.length} of ${parts.length} …`;
        }
        return falls;
      }
      if (!await inSlices(tryAll(), () => mine === trying)) return;
      drawTried(kind, parts, falls);
      const most = falls.indexOf(Math.max(...falls)), { off, hide } = parts[most], which = off ? partName(off).replace(" off", "") : `patch ${hide}`;
      const grey = kind === "patches" ? " (A hidden patch is painted over, not made empty: so a corner in which there was nothing can matter, too.)" : "";
      $('[data-text="tried"]').textContent = `${classes[k]} had ${percent(was)}. Without ${which} it has ${percent(was - falls[most] / 100)}, a change of ${points(-falls[most])}: nothing else matters as much. The change without each one, in points of a hundred:${grey}`;
      reveal($('[data-spot="matters"]'));
    }

    const points = (change) => (Math.abs(change) < 0.05 ? "0.0" : `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)}`);
    const reveal = (element) => element.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });

    function drawTried(kind, parts, falls) {
      const place = $(".tried"), most = Math.max(...falls, 0.5);
      place.replaceChildren();
      if (kind === "patches") {
        cells(place, "What each patch is worth", data, say).show({ values: Float32Array.from(falls, (fall) => -fall), columns, square: true,
          picture: rearrange(of.picture, data, of.changes), shape: config.shape,
          name: (i) => `without patch ${i}`, clicked: (i) => chooseToken(i + prefix) });
        return;
      }
      const across = parts.length / L;
      for (let layer = 0; layer < L; layer++) {
        place.append(make("div", { className: "tried-row" }, make("span", { className: "when", textContent: `block ${layer}` }),
          ...parts.slice(layer * across, (layer + 1) * across).map(({ off, name }, i) => {
            const fall = falls[layer * across + i], button = make("button", { type: "button", className: "drop", title: "Switch it off, or on", onclick: () => toggle(off) });
            button.append(make("span", { textContent: name }), make("b", { textContent: points(-fall) }));
            button.style.setProperty("--share", `${Math.max(0, (100 * fall) / most)}%`);
            return button;
          })));
      }
    }

    function forgetTried() { // it was about another picture
      trying++;
      $(".tried").replaceChildren();
      $('[data-text="tried"]').textContent = "";
    }

    function toggle(part) {
      const { off } = state.changes;
      change({ off: off.includes(part) ? off.filter((name) => name !== part) : [...off, part] });
    }

    // ------------------------------------------------------------------------------------------------- controls

    function go(station) {
      state.station = station;
      for (const tab of $(".stations").children) {
        const here = tab.dataset.to === station;
        tab.ariaSelected = String(here);
        tab.tabIndex = here ? 0 : -1;
        if (here) $(".panel").setAttribute("aria-label", tab.textContent);
      }
      for (const part of $$(".station")) part.classList.toggle("hidden", part.dataset.station !== station);
      $(".layers").classList.toggle("hidden", !WITH_LAYER.includes(station));
      $(".heads").classList.toggle("hidden", !WITH_HEAD.includes(station));
      draw();
    }

    const facts = { N, D, h, M, L, C, length: size / N, stem: config.stem, prefix, draws: C === 1 && H <= 32 };
    const tour = TOUR.filter(([, , , sentence]) => sentence(facts));
    function stop(number, scroll = false) { // of the tour
      state.stop = number;
      $$(".spot").forEach((element) => element.classList.remove("spot"));
      const [station, spot, follow, sentence] = tour[number];
      if (follow === "class" ? prefix : state.token < prefix) state.token = follow === "class" ? 0 : middle;
      go(station);
      $(".sentence").textContent = sentence(facts);
      const element = $(`.station:not(.hidden) ${spot}`) ?? $(spot);
      element.classList.add("spot");
      measureTour();
      if (scroll) reveal(element);
      $(".count").textContent = `${number + 1} of ${tour.length}`;
      $('[data-do="back"]').disabled = number === 0;
      $('[data-do="next"]').textContent = number === tour.length - 1 ? "Start again" : "Next";
    }
    const measureTour = () => $(".live").style.setProperty("--tour-height", `${$(".tour").offsetHeight}px`); // it covers what is under it

    function radios(place, name, texts, chosen, choose) {
      place.append(...texts.map((text, i) => {
        const input = make("input", { type: "radio", name, value: i, checked: i === chosen });
        input.onchange = () => choose(i);
        return make("label", {}, input, typeof text === "string" ? make("span", { textContent: text }) : text);
      }));
    }

    function buildControls() {
      for (const [name, text] of Object.entries(STATIONS)) {
        const tab = make("button", { type: "button", textContent: text, onclick: () => { leaveTour(); go(name); } });
        tab.setAttribute("role", "tab");
        tab.dataset.to = name;
        $(".stations").append(tab);
      }
      $(".stations").addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], names = Object.keys(STATIONS);
        if (!by) return;
        event.preventDefault();
        const next = (names.indexOf(state.station) + by + names.length) % names.length;
        leaveTour();
        go(names[next]);
        $(".stations").children[next].focus();
      });
      for (let token = 0; token < prefix; token++) {
        $(".special").append(make("button", { type: "button", onclick: () => chooseToken(token) }, make("i", { textContent: ["CLS", "DIST"][token], ariaHidden: "true" }), tokenName(token)));
      }
      $(".layers").append(make("span", { className: "when", textContent: "Block" }));
      radios($(".layers"), "layer", Array.from({ length: L }, (_, i) => String(i)), state.layer, (layer) => { state.layer = layer; draw(); });
      $(".heads").append(make("span", { className: "when", textContent: "Head" }));
      radios($(".heads"), "head", Array.from({ length: h }, (_, i) => {
        const map = make("canvas");
        map.style.aspectRatio = `${columns} / ${rows}`;
        return make("span", {}, map, String(i));
      }), state.head, (head) => { state.head = head; draw(); });
      $(".patch-lens select").append(...classes.map((name, k) => make("option", { textContent: name, value: k })));
      $(".patch-lens select").onchange = (event) => { state.read = Number(event.target.value); draw(); };
      patchMaps = Array.from({ length: L + 1 }, (_, step) => {
        const place = make("div", { className: "patch-map" }, make("span", { className: "when", textContent: step ? `after block ${step - 1}` : "after the embedding" }));
        $(".patch-maps").append(place);
        return cells(place, `Patches ${step ? `after block ${step - 1}` : "after the embedding"}`, data, say);
      });
      $(".switches").append(...Array.from({ length: L }, (_, layer) => {
        const one = (text, part, title) => {
          const button = make("button", { type: "button", className: "switch", textContent: text, onclick: () => toggle(button.dataset.part) });
          button.dataset.part = `blocks.${layer}${part}`;
          button.setAttribute("aria-label", `block ${layer}${title}`);
          button.title = "On. Click to switch it off, and on again.";
          return button;
        };
        return make("div", { className: "switch-row" }, one(`block ${layer}`, "", ""),
          make("span", {}, one("attention", ".attention", ", attention"), ...Array.from({ length: h }, (_, head) => one(`head ${head}`, `.attention.heads.${head}`, `, head ${head}`)),
            one("+ z", ".attention.residual", ", shortcut beside attention")),
          make("span", {}, one("MLP", ".mlp", ", MLP"), one("+ z′", ".mlp.residual", ", shortcut beside the MLP")));
      }));
    }

    function leaveTour() {
      $$(".spot").forEach((element) => element.classList.remove("spot"));
      $(".sentence").textContent = state.stop < tour.length - 1 ? "You walk on your own. Next goes on with the tour." : "You walk on your own.";
    }

    const actions = {
      clear: () => { remember(); pad.clear(); },
      fit: () => { remember(); pad.fit(); },
      open: () => $("input[type=file]").click(),
      async undo() {
        const { ink, ...before } = past.pop();
        Object.assign(state, before);
        pad.show(ink);
        drawPicker();
        drawSwitches();
        await catchUp();
        say(spokenAnswer());
      },
      reset: () => change(NOTHING),
      async link() {
        const url = `${location.href.split("#")[0]}#${pack()}`;
        try { history.replaceState(null, "", url); } catch { /* a frame without an address of its own */ }
        let text = "Copied: whoever opens it sees what you see, your picture included.";
        try { await navigator.clipboard.writeText(url); } catch { text = "The link is in the address bar: copy it from there."; }
        $(".copied").textContent = text;
      },
      back: () => stop(state.stop - 1, true),
      next: () => stop((state.stop + 1) % tour.length, true),
      hide() {
        const patch = state.token - prefix, { hidden } = state.changes;
        change({ hidden: hidden.includes(patch) ? hidden.filter((n) => n !== patch) : [...hidden, patch] });
      },
      swap() {
        state.swapping = true;
        $(".picker .note:last-child").textContent = `Now choose the patch that changes places with patch ${state.token - prefix}.`;
        $(".picker canvas").focus();
        say("Choose the other patch: arrow keys, then Enter");
      },
      repeat: () => change({ order: Array(N).fill(state.changes.order?.[state.token - prefix] ?? state.token - prefix) }),
      shuffle() {
        const order = [...Array(N).keys()];
        for (let i = N - 1; i > 0; i--) {
          const j = Math.floor(Math.random() * (i + 1));
          [order[i], order[j]] = [order[j], order[i]];
        }
        change({ order });
      },
      restore: () => change({ order: null, hidden: [] }),
      "try-heads": () => tryEach("heads"),
      "try-parts": () => tryEach("parts"),
      "try-patches": () => tryEach("patches"),
    };

    function wire() {
      for (const button of $$("[data-do]")) button.onclick = () => actions[button.dataset.do]();
      $('[name="scale"]').onchange = (event) => change({ scale: event.target.checked });
      for (const input of $$('[name="position"]')) input.onchange = () => change({ position: input.value });
      for (const name of ["temperature", "answer"]) {
        $(`[name="${name}"]`).oninput = (event) => change({ [name]: Number((10 ** (Number(event.target.value) / 10)).toPrecision(2)) });
      }
      const canvas = $(".picker canvas");
      canvas.style.aspectRatio = `${W} / ${H}`;
      $(".pad canvas").style.aspectRatio = `${W} / ${H}`;
      let to = state.token; // where the keys are, while a patch to swap with is looked for
      canvas.addEventListener("click", (event) => {
        const { left, top, width, height } = canvas.getBoundingClientRect();
        const [row, column] = [Math.floor(((event.clientY - top) / height) * rows), Math.floor(((event.clientX - left) / width) * columns)];
        chooseToken(prefix + Math.min(row, rows - 1) * columns + Math.min(column, columns - 1));
      });
      canvas.addEventListener("keydown", (event) => {
        const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
        if (event.key === "Escape") { state.swapping = false; chooseToken(state.token); }
        if (event.key === "Enter" && state.swapping) chooseToken(to);
        if (!by || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        if (!state.swapping) to = state.token;
        const [row, column] = to < prefix ? [-1, 0] : at(to);
        const target = row + by[0] < 0 && prefix && !state.swapping ? 0
          : prefix + Math.min(Math.max(row + by[0], 0), rows - 1) * columns + Math.min(Math.max(column + by[1], 0), columns - 1);
        to = target;
        if (state.swapping) say(`with ${tokenName(to)}, ${placeOf(to)}? Enter swaps`);
        else chooseToken(target);
      });
      const file = $("input[type=file]");
      file.onchange = () => { if (file.files[0]) take(file.files[0]); file.value = ""; };
      const section = $(".live");
      section.addEventListener("dragover", (event) => { event.preventDefault(); section.classList.add("dropping"); });
      section.addEventListener("dragleave", () => section.classList.remove("dropping"));
      section.addEventListener("drop", (event) => {
        event.preventDefault();
        section.classList.remove("dropping");
        const dropped = event.dataTransfer.files[0];
        if (dropped) take(dropped);
        else $(".message").textContent = "That was not a file: drop a picture from your computer.";
      });
      section.tabIndex = -1; // so that what is pasted reaches it after a click anywhere
      section.addEventListener("paste", (event) => {
        const pasted = [...event.clipboardData.files][0];
        if (pasted) take(pasted);
        else $(".message").textContent = "What you pasted is not a picture: copy a picture first.";
      });
      new ResizeObserver(drawPicker).observe(canvas);
    }

    async function take(dropped) {
      try {
        const picture = await readPhoto(dropped, data);
        choosePicture(picture.map((v) => Math.round(white * v) / white));
        $(".message").textContent = `${dropped.name || "Your picture"}, cut and made as small as the model takes it: ${W} × ${H} pixels.`;
      } catch (error) {
        $(".message").textContent = error.message;
      }
    }

    // ------------------------------------------------------------------------------------------------- the link

    function pack() { // all of the state as text for an address
      const { sample, changes, station, token, layer, head } = state;
      const levels = Uint8Array.from(state.picture, (v) => Math.round(white * v));
      const [picture, ink] = sample < 0 ? [levels, Uint8Array.from(pad.ink(), (v) => Math.round(255 * v))].map((array) => btoa(String.fromCharCode(...array))) : [];
      const text = btoa(JSON.stringify({ id, sample, changes, station, token, layer, head, picture, ink }));
      return `live=${text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
    }

    let restoredInk = null; // finer than the picture
    function restore() { // what the address says, if it is about this model
      const found = /[#&]live=([\w-]+)/.exec(location.hash);
      if (!found) return false;
      try {
        const kept = JSON.parse(atob(found[1].replaceAll("-", "+").replaceAll("_", "/")));
        if (kept.id !== id) return false;
        const picture = kept.picture ? Float32Array.from(bytes(kept.picture), (v) => v / white) : samples[kept.sample];
        if (picture?.length !== size || !(kept.station in STATIONS) || !(kept.token < T) || !(kept.layer < L) || !(kept.head < h)) return false;
        Object.assign(state, { sample: kept.sample, picture, changes: { ...NOTHING, ...kept.changes }, station: kept.station, token: kept.token, layer: kept.layer, head: kept.head });
        run(state.picture, state.changes);
        if (kept.ink) restoredInk = Float32Array.from(bytes(kept.ink), (v) => v / 255);
        return true;
      } catch { // an address cut short, or someone else's
        Object.assign(state, { changes: { ...NOTHING }, picture: samples[0], sample: 0 });
        return false;
      }
    }

    data.blue = getComputedStyle(host).getPropertyValue("--query").trim() || "#0072B2";
    let over = false; // a sample
    const pad = drawingPad($(".pad canvas"), config.shape, white, async (picture, final) => {
      if (!picture) {
        over = state.sample >= 0;
        return remember();
      }
      Object.assign(state, { picture, sample: -1 });
      $(".message").textContent = !final || C > 1 ? ""
        : pad.isEmpty() ? "The pad is empty. The model must name something even so."
        : over ? "You drew on top of the picture that was there: Clear gives you an empty pad."
        : pad.filled() < 0.75 ? "That is small. The digits it learned from fill the frame: press Fit." : "";
      if (final) over = false;
      forgetTried();
      drawing = !final;
      await catchUp();
      if (final) say(spokenAnswer());
    }, say);
    new ResizeObserver(measureTour).observe($(".tour"));
    radios($(".colours"), "pen", (C === 1 ? ["white", "black"] : Object.keys(COLOURS)).map((name) => {
      const swatch = make("span", { title: C === 1 ? { white: "Draw", black: "Erase" }[name] : name, textContent: C === 1 ? { white: "Draw", black: "Erase" }[name] : "" });
      if (C > 1) { swatch.style.background = `rgb(${COLOURS[name].map((v) => Math.round(255 * v)).join(" ")})`; swatch.append(make("span", { className: "spoken", textContent: name })); }
      return swatch;
    }), 0, (i) => pad.choose((C === 1 ? ["white", "black"] : Object.keys(COLOURS))[i]));
    if (C > 1) $$('[data-do="fit"], [data-do="clear"]').forEach((button) => button.remove());
    if (C > 1) $(".colours").classList.add("swatches");
    const images = [...host.querySelectorAll("img")];
    $(".samples").append(...images.map(({ src, alt }, i) => make("button", { type: "button", title: alt, onclick: () => choosePicture(samples[i], i) }, make("img", { src, alt }))));
    const restored = restore();
    build();
    buildControls();
    wire();
    pad.show(restoredInk ?? state.picture);
    ({ now, before, of } = finish(bothPasses(state)));
    const station = state.station;
    stop(0);
    if (restored) { leaveTour(); go(station); $$('[name="layer"]')[state.layer].checked = true; $$('[name="head"]')[state.head].checked = true; }
    // In the browser's console: $0.live.run(picture) gives every number of a pass, as the package names them.
    host.live = { config, samples, state, run, lens: (one) => lens(one, weights, config), fitPhoto: (rgba, size) => fitPhoto(rgba, size, data) };
  }

  begin("live", start);
