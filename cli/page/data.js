// What the page was given, unpacked, and how its numbers are written: as the program writes them.

const raw = JSON.parse(document.getElementById("data").textContent);
const text = (index) => raw.strings[index];
const categories = raw.categories.map(([name, label], index) => ({ name, label, index }));

const KiB = 1024;
const grouped = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** Four digits with their unit: 61.32 GiB, 812.0 MiB. */
function bytes(n) {
  if (n < 0) return "\u2212" + bytes(-n);
  if (n < KiB) return `${n} B`;
  let scale = KiB;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    const last = unit === "TiB";
    const value = n / scale;
    scale *= KiB;
    if (Math.round(value) >= KiB && !last) continue;
    if (Math.round(value) >= 1000) return `${grouped(value)} ${unit}`;
    if (Math.round(value * 100) < 10000) return `${(Math.round(value * 100) / 100).toFixed(2)} ${unit}`;
    return `${(Math.round(value * 10) / 10).toFixed(1)} ${unit}`;
  }
  return "";
}

const percent = (part, whole) => `${(whole ? (100 * part) / whole : 0).toFixed(1)} %`;

function duration(s) {
  if (s >= 100) return `${s.toFixed(1)} s`;
  if (s >= 1) return `${s.toFixed(3)} s`;
  if (s >= 1e-3) return `${(s * 1e3).toFixed(1)} ms`;
  return `${(s * 1e6).toFixed(1)} us`;
}

/** "8Ki", "1,536": tokens as .plan files write them. */
function tokens(n) {
  if (n >= KiB * KiB && n % (KiB * KiB) === 0) return `${n / KiB / KiB}Mi`;
  return n >= KiB && n % KiB === 0 ? `${n / KiB}Ki` : grouped(n);
}

function unpackColumns(list) {
  const rows = new Map();
  return list.map(([part, microBatch, chunk, moments, many, total, changes]) => {
    for (let i = 0; i < changes.length; i += 2) {
      if (changes[i + 1]) rows.set(changes[i], changes[i + 1]);
      else rows.delete(changes[i]);
    }
    const items = [...rows].map(([row, size]) => {
      const [name, category] = raw.timeline.rows[row];
      return { name: text(name), category, bytes: size };
    });
    const sums = categories.map(() => 0);
    for (const item of items) sums[item.category] += item.bytes;
    return { part: ["forward", "backward", "update", "between"][part], microBatch, chunk, moments, many: many === 1, bytes: total, items, sums };
  });
}

const stages = raw.bill
  ? raw.bill.stages.map((s) => ({
      ...s,
      moment: text(s.moment),
      items: s.items.map(([name, category, size, formula, lifetime, source]) => ({
        name: text(name), category, bytes: size, formula: text(formula), lifetime: text(lifetime), source: text(source),
      })),
    }))
  : [];

/** A combination of the workshop's controls: model, attention, recompute, zero, seq. */
function workshopPoint(at) {
  const shop = raw.workshop;
  const sizes = [shop.models, shop.attentions, shop.recomputes, shop.zeros, shop.batches, shop.seqs].map((list) => list.length);
  const point = shop.points[at.reduce((sum, index, axis) => sum * sizes[axis] + index, 0)];
  if (!point) return null;
  const sums = categories.map((_, i) => (i + 2 < point.length ? shop.values[point[i + 2]] : 0));
  return { stage: point[0], hbm: shop.values[point[1]], sums, peak: sums.reduce((a, b) => a + b, 0) };
}
