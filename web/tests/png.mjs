// Makes screenshots small: a PNG with a palette of 256 colors. Pages have few colors, so this is hardly visible.
import { crc32, deflateSync, inflateSync } from "node:zlib";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

const chunks = function* (png) {
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    yield { type: png.toString("latin1", at + 4, at + 8), data: png.subarray(at + 8, at + 8 + length) };
    at += length + 12;
  }
};

/** What the filters of PNG expect a byte to be. */
const predict = (filter, left, up, corner) => {
  if (filter === 0) return 0;
  if (filter === 1) return left;
  if (filter === 2) return up;
  if (filter === 3) return (left + up) >> 1;
  const toLeft = Math.abs(up - corner);
  const toUp = Math.abs(left - corner);
  const toCorner = Math.abs(left + up - 2 * corner);
  return toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner;
};

/** The pixels of a PNG with 8 bits for each of three or four channels, as Chromium writes them. */
const decode = (png) => {
  const all = [...chunks(png)];
  const head = all.find(({ type }) => type === "IHDR").data;
  const [width, height, size] = [head.readUInt32BE(0), head.readUInt32BE(4), head[9] === 6 ? 4 : 3];
  const raw = inflateSync(Buffer.concat(all.filter(({ type }) => type === "IDAT").map(({ data }) => data)));
  const stride = width * size;
  const pixels = Buffer.alloc(stride * height);
  for (let y = 0; y < height; y += 1) {
    const filter = raw[y * (stride + 1)];
    for (let x = 0; x < stride; x += 1) {
      const at = y * stride + x;
      const left = x >= size ? pixels[at - size] : 0;
      const up = y > 0 ? pixels[at - stride] : 0;
      const corner = x >= size && y > 0 ? pixels[at - stride - size] : 0;
      pixels[at] = raw[y * (stride + 1) + 1 + x] + predict(filter, left, up, corner);
    }
  }
  return { width, height, size, pixels };
};

const distance = (a, b) => ((a >> 16) - (b >> 16)) ** 2 + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;

/** The most frequent colors. Colors that differ little from one that was taken are left to it. */
const paletteOf = (counts) => {
  const palette = [];
  const colors = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  for (const tolerance of [48, 8, 0]) {
    for (const color of colors) {
      if (palette.length === 256) return palette;
      if (palette.every((other) => distance(color, other) > tolerance)) palette.push(color);
    }
  }
  return palette;
};

const chunk = (type, data) => {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(body) >>> 0, 4);
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
};

export const withPalette = (png) => {
  const { width, height, size, pixels } = decode(png);
  const colors = new Uint32Array(width * height);
  const counts = new Map();
  for (let at = 0; at < colors.length; at += 1) {
    colors[at] = (pixels[at * size] << 16) | (pixels[at * size + 1] << 8) | pixels[at * size + 2];
    counts.set(colors[at], (counts.get(colors[at]) ?? 0) + 1);
  }
  const palette = paletteOf(counts);
  const nearest = new Map();
  for (const color of counts.keys()) {
    let best = 0;
    for (let index = 1; index < palette.length; index += 1) if (distance(color, palette[index]) < distance(color, palette[best])) best = index;
    nearest.set(color, best);
  }
  const rows = Buffer.alloc((width + 1) * height);
  for (let at = 0; at < colors.length; at += 1) rows[Math.floor(at / width) * (width + 1) + 1 + (at % width)] = nearest.get(colors[at]);
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  const table = Buffer.from(palette.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]));
  return Buffer.concat([SIGNATURE, chunk("IHDR", head), chunk("PLTE", table), chunk("IDAT", deflateSync(rows, { level: 9 })), chunk("IEND", Buffer.alloc(0))]);
};
