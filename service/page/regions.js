/* The regions of the classes as pixels: which class a point there would get. Coarse while it changes, as fine as half a pixel
   when it rests. */

import { colour, isDark, striped } from "./palette.js";

const AFFORDED = 8; // milliseconds that the regions may take while they change
const LEAST = 180, MOST = 1600; // cells along a side
const STRIPE = 9; // cells from one stripe to the next

export class Regions {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.cost = 2e-4; // milliseconds a cell takes
  }

  /** classAt(x, y) of a point of the disk, drawn on a square of `side` pixels */
  draw(context, classAt, { side, radius, ratio }, resting) {
    const begun = performance.now(), finest = Math.min(MOST, Math.round(side * Math.max(ratio, 2)));
    const cells = resting ? finest : Math.max(Math.min(LEAST, finest), Math.min(finest, Math.floor(Math.sqrt(AFFORDED / this.cost))));
    const found = decided(classAt, cells, side / radius / cells, resting ? 6 : 8);
    this.canvas.width = this.canvas.height = cells;
    this.canvas.getContext("2d").putImageData(inked(found, cells, resting ? 2 : 1), 0, 0);
    if (!resting) this.cost = (performance.now() - begun + 0.01) / (cells * cells);
    context.imageSmoothingQuality = "high";
    context.drawImage(this.canvas, 0, 0, side, side);
  }
}

/** The class of each cell, −1 outside of the disk. A block whose corners agree is taken as a whole */
function decided(classAt, cells, unit, block) {
  const found = new Int16Array(cells * cells).fill(-1), corners = Math.ceil(cells / block) + 1, middle = (cells * unit) / 2;
  const at = (i, j) => {
    const x = (i + 0.5) * unit - middle, y = middle - (j + 0.5) * unit;
    return x * x + y * y < 0.9999 ? classAt(x, y) : -1;
  };
  const coarse = new Int16Array(corners * corners);
  for (let j = 0; j < corners; j++) for (let i = 0; i < corners; i++) coarse[j * corners + i] = at(i * block, j * block);
  for (let j = 0; j + 1 < corners; j++) {
    for (let i = 0; i + 1 < corners; i++) {
      const c = j * corners + i, k = coarse[c], right = Math.min((i + 1) * block, cells);
      const whole = k >= 0 && k === coarse[c + 1] && k === coarse[c + corners] && k === coarse[c + corners + 1];
      for (let y = j * block; y < Math.min((j + 1) * block, cells); y++) {
        if (whole) found.fill(k, y * cells + i * block, y * cells + right);
        else for (let x = i * block; x < right; x++) found[y * cells + x] = at(x, y);
      }
    }
  }
  return found;
}

/** A class's tint as pixels: plain, of a stripe, of a border */
function tint(k) {
  const [r, g, b] = colour(k).match(/\w\w/g).map((each) => parseInt(each, 16)), alphas = isDark() ? [62, 130, 200] : [44, 100, 170];
  return alphas.map((alpha) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0);
}

/** The picture of those classes; `fine` is 2 where two cells are a pixel: borders and stripes are twice as wide there */
function inked(found, cells, fine) {
  const image = new ImageData(cells, cells), pixels = new Uint32Array(image.data.buffer), tints = [];
  const other = (k, cell) => found[cell] >= 0 && found[cell] !== k;
  for (let j = 0, cell = 0; j < cells; j++) {
    for (let i = 0; i < cells; i++, cell++) {
      const k = found[cell];
      if (k < 0) continue;
      const inks = (tints[k] ??= tint(k));
      const border = (i + 1 < cells && other(k, cell + 1)) || other(k, cell + cells) || (fine > 1 && ((i > 0 && other(k, cell - 1)) || other(k, cell - cells)));
      pixels[cell] = inks[border ? 2 : striped(k) && (i + j) % (STRIPE * fine) < 3 * fine ? 1 : 0];
    }
  }
  return image;
}
