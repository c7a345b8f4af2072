// Photographs of side × side patches, which the pointer and the arrow keys reach; used by spotlight.js and clicks.js.

export const bytes = (text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// The dot product of a vector with one row of a matrix.
export const product = (vector, matrix, row) => {
  let sum = 0;
  for (let n = 0; n < vector.length; n++) sum += vector[n] * matrix[row * vector.length + n];
  return sum;
};

export class Photographs {
  // `at` is the current picture and patch: the arrow keys move it, and then call `show`, as does a loaded picture.
  constructor({ sources, side, alt, at, show }) {
    Object.assign(this, { side, at, show });
    this.images = sources.map((src) => Object.assign(new Image(), { src, onload: show }));
    this.small = Object.assign(document.createElement("canvas"), { width: side, height: side }); // a pixel a patch
    this.row = document.createElement("div");
    this.row.style.cssText = "display: flex; flex-wrap: wrap; gap: 6px; margin: 4px 0";
    this.canvases = sources.map((_, picture) => this.addCanvas(picture, alt));
  }

  addCanvas(picture, alt) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 370, height: 370, tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", alt);
    canvas.style.cssText = "width: 100%; cursor: crosshair; touch-action: pan-y";
    canvas.addEventListener("keydown", (event) => this.moveByKey(picture, event));
    const pane = document.createElement("figure");
    pane.style.cssText = "flex: 1 1 150px; min-width: 0; max-width: 370px; margin: 0";
    pane.append(canvas);
    this.row.append(pane);
    return canvas;
  }

  moveByKey(picture, event) {
    const { side, at } = this;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook's own keys
    this.moveTo(picture, (at.patch + step + side * side) % (side * side));
  }

  moveTo(picture, patch) {
    Object.assign(this.at, { picture, patch });
    this.show();
  }

  moveToPointer(picture, { offsetX, offsetY }) {
    const [column, line] = [offsetX, offsetY].map((place) => {
      const index = Math.floor((this.side * place) / this.canvases[picture].clientWidth);
      return Math.max(0, Math.min(index, this.side - 1));
    });
    this.moveTo(picture, this.side * line + column);
  }

  // A photograph under black, of which `darkness` says how much lies on each patch, from 0 to 255.
  draw(picture, darkness) {
    const { side, small } = this;
    const shade = small.getContext("2d");
    const paint = shade.createImageData(side, side);
    darkness.forEach((alpha, n) => {
      paint.data[4 * n + 3] = alpha;
    });
    shade.putImageData(paint, 0, 0);
    const canvas = this.canvases[picture];
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = this.images[picture].width > canvas.width / 2;
    context.drawImage(this.images[picture], 0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
  }

  // A frame around the current patch.
  frame(picture) {
    const canvas = this.canvases[picture];
    const context = canvas.getContext("2d");
    const size = canvas.width / this.side;
    const { patch } = this.at;
    const rectangle = [(patch % this.side) * size, Math.floor(patch / this.side) * size, size, size];
    for (const [strokeStyle, lineWidth] of [
      ["#ffffff", 5],
      ["#0072B2", 3],
    ]) {
      Object.assign(context, { strokeStyle, lineWidth });
      context.strokeRect(...rectangle);
    }
  }
}
