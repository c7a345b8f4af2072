
  // ------------------------------------------------------------------------------------------------- drawing

  const COLOURS = { white: [1, 1, 1], black: [0, 0, 0], red: [0.84, 0.2, 0.15], green: [0.1, 0.6, 0.3], blue: [0.1, 0.35, 0.75], yellow: [0.95, 0.8, 0.2] };

  // A pad to draw on, finer than the picture, so that strokes are smooth: each pixel of the picture is a mean of its ink.
  // changed(picture, final) is told of every stroke; final: the pen was lifted.
  function drawingPad(canvas, [C, H, W], white, changed, say) {
    const fine = Math.max(1, Math.round(64 / Math.max(H, W))), [h, w] = [H * fine, W * fine];
    const radius = (C === 1 ? 0.55 : Math.max(H, W) / 26) * fine;
    const ink = new Float32Array(C * h * w), pen = { x: w / 2, y: h / 2, down: false, colour: [1, 1, 1], shown: false };

    function stroke(fromX, fromY, toX, toY) { // full within the radius, fading over one pixel of the pad
      const reach = Math.ceil(radius + 1), length = (toX - fromX) ** 2 + (toY - fromY) ** 2 || 1;
      const [left, right] = [Math.min(fromX, toX) - reach, Math.max(fromX, toX) + reach];
      const [top, bottom] = [Math.min(fromY, toY) - reach, Math.max(fromY, toY) + reach];
      for (let y = Math.max(0, Math.floor(top)); y < Math.min(h, bottom); y++) {
        for (let x = Math.max(0, Math.floor(left)); x < Math.min(w, right); x++) {
          const along = ((x + 0.5 - fromX) * (toX - fromX) + (y + 0.5 - fromY) * (toY - fromY)) / length;
          const part = Math.min(Math.max(along, 0), 1);
          const away = Math.hypot(x + 0.5 - fromX - part * (toX - fromX), y + 0.5 - fromY - part * (toY - fromY));
          const cover = Math.min(Math.max(radius + 0.5 - away, 0), 1);
          for (let c = 0; c < C; c++) {
            const i = (c * h + y) * w + x, towards = pen.colour[c];
            ink[i] = towards > ink[i] ? Math.max(ink[i], cover * towards) : Math.min(ink[i], 1 - cover * (1 - towards));
          }
        }
      }
    }

    function picture() { // (C, H, W), in the steps that the samples have
      const out = new Float32Array(C * H * W);
      for (let i = 0; i < ink.length; i++) {
        const c = Math.floor(i / (h * w)), y = Math.floor((i % (h * w)) / w), x = i % w;
        out[(c * H + Math.floor(y / fine)) * W + Math.floor(x / fine)] += ink[i] / fine ** 2;
      }
      return out.map((v) => Math.round(white * v) / white);
    }

    function show(values) { // a picture in place of what was drawn, or the ink of an earlier drawing
      if (values.length === ink.length) ink.set(values);
      else for (let i = 0; i < ink.length; i++) {
        const c = Math.floor(i / (h * w)), y = Math.floor((i % (h * w)) / w), x = i % w;
        ink[i] = values[(c * H + Math.floor(y / fine)) * W + Math.floor(x / fine)];
      }
      draw();
    }

    function extent() { // [top, bottom, left, right] of what was drawn, in pixels of the pad; null: nothing
      const found = [h, -1, w, -1];
      for (let i = 0; i < h * w; i++) {
        if (ink[i] < 0.25) continue;
        const y = Math.floor(i / w), x = i % w;
        found[0] = Math.min(found[0], y);
        found[1] = Math.max(found[1], y);
        found[2] = Math.min(found[2], x);
        found[3] = Math.max(found[3], x);
      }
      return found[1] < 0 ? null : found;
    }

    const filled = () => { // which share of the frame's height or width is drawn on
      const [top, bottom, left, right] = extent() ?? [0, h, 0, w];
      return Math.max((bottom - top + 1) / h, (right - left + 1) / w);
    };

    function fit() { // what was drawn, as high or as wide as the frame, as the digits it learned from are
      if (!extent()) return;
      const [top, bottom, left, right] = extent(), scale = filled(), old = ink.slice();
      for (let i = 0; i < h * w; i++) {
        const y = Math.round((top + bottom) / 2 + (Math.floor(i / w) - (h - 1) / 2) * scale);
        const x = Math.round((left + right) / 2 + ((i % w) - (w - 1) / 2) * scale);
        ink[i] = y >= 0 && y < h && x >= 0 && x < w ? old[y * w + x] : 0;
      }
      draw();
      changed(picture(), true);
    }

    function clear() {
      ink.fill(C === 1 ? 0 : 0.5);
      draw();
      changed(picture(), true);
    }

    const shown = new OffscreenCanvas(w, h);
    function draw() {
      paint(shown, ink, [C, h, w]);
      const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
      const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.round(side * ratio));
      if (!width) return;
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
      context.imageSmoothingEnabled = false;
      context.drawImage(shown, 0, 0, width, height);
      if (!pen.shown) return;
      context.beginPath();
      context.arc((pen.x / w) * width, (pen.y / h) * height, Math.max((radius / w) * width, 6 * ratio), 0, 2 * Math.PI);
      for (const [strokeStyle, lineWidth] of [["#000000", 5 * ratio], [pen.down ? "#E69F00" : "#ffffff", 2.5 * ratio]]) {
        Object.assign(context, { strokeStyle, lineWidth });
        context.stroke();
      }
    }

    function move(x, y) {
      if (pen.down) stroke(pen.x, pen.y, x, y);
      Object.assign(pen, { x, y });
      draw();
      if (pen.down) changed(picture(), false);
    }

    const under = ({ clientX, clientY }) => {
      const { left, top, width, height } = canvas.getBoundingClientRect();
      return [((clientX - left) / width) * w, ((clientY - top) / height) * h];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      [pen.x, pen.y] = under(event);
      Object.assign(pen, { down: true, shown: false });
      changed(null, false); // a stroke begins: what was there can be brought back
      move(pen.x, pen.y);
    });
    canvas.addEventListener("pointermove", (event) => { if (pen.down && canvas.hasPointerCapture(event.pointerId)) move(...under(event)); });
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => {
        if (!pen.down || !canvas.hasPointerCapture(event.pointerId)) return;
        pen.down = false;
        changed(picture(), true);
      });
    }
    canvas.addEventListener("keydown", (event) => {
      if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
      const step = 0.5 * Math.max(1, H / 16) * fine;
      const by = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
      if (!by && event.key !== " " && event.key !== "Delete") return;
      event.preventDefault();
      pen.shown = true;
      if (event.key === "Delete") return clear();
      if (event.key === " ") {
        pen.down = !pen.down;
        changed(pen.down ? null : picture(), !pen.down);
      }
      const [x, y] = by ? [pen.x + by[0] * step, pen.y + by[1] * step] : [pen.x, pen.y];
      move(Math.min(Math.max(x, 0), w), Math.min(Math.max(y, 0), h));
      say(`Pen ${pen.down ? "down" : "up"}, row ${(pen.y / fine).toFixed(1)}, column ${(pen.x / fine).toFixed(1)} of ${H}`);
    });
    canvas.addEventListener("blur", () => {
      if (pen.down && pen.shown) changed(picture(), true);
      Object.assign(pen, { down: false, shown: false });
      draw();
    });
    new ResizeObserver(draw).observe(canvas);
    return { show, fit, filled, clear, ink: () => ink.slice(), isEmpty: () => !extent(), choose: (colour) => { pen.colour = C === 1 ? [COLOURS[colour][0]] : COLOURS[colour]; } };
  }
