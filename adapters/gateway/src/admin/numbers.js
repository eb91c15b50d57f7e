// How a number reads: its unit is the last word of its key. Pure.

const UNITS = {
  bytes,
  cpu: (n) => `${decimal(n)} %`, // of one core
  ms: (n) => time(n * 1e-3),
  us: (n) => time(n * 1e-6),
  ns: (n) => time(n * 1e-9),
  sec: time,
  secs: time,
  seconds: time,
  percent: (n) => `${decimal(n)} %`,
  ratio: (n) => `${decimal(n * 100)} %`,
};

// Counters are shown by how fast they grow.
export const isCounter = (key) => key.endsWith("_total");

export function format(key, number) {
  const [unit] = key.replace(/_total$/, "").match(/[a-z]+$/) ?? [];
  return (Object.hasOwn(UNITS, unit) ? UNITS[unit] : decimal)(number);
}

export const perSecond = (key, number) => `${format(key, number)}/s`;

// Three digits that count; whole numbers up to a million in full. What nobody could read in full is in scientific notation.
export function decimal(number) {
  const size = Math.abs(number);
  if (size >= 1e15 || (size > 0 && size < 1e-6)) return number.toExponential(2);
  if (size >= 1e6) return grouped(number, { notation: "compact", maximumSignificantDigits: 3 });
  if (Number.isInteger(number) || size >= 100) return grouped(number, { maximumFractionDigits: 0 });
  return grouped(number, { maximumSignificantDigits: size < 1 ? 2 : 3 });
}

export function bytes(number) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const step = Math.min(Math.max(Math.floor(Math.log2(Math.abs(number)) / 10), 0), names.length - 1) || 0;
  return `${decimal(number / 1024 ** step)} ${names[step]}`;
}

// Of seconds. From a minute on, the two largest parts.
export function time(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 0.9995e-3) return `${decimal(seconds * 1e6)} µs`;
  if (size < 0.9995) return `${decimal(seconds * 1e3)} ms`;
  if (size < 60) return `${decimal(seconds)} s`;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, length]) => size >= length);
  let rest = Math.floor(size);
  const words = parts.slice(first, first + 2).map(([name, length]) => {
    const count = Math.floor(rest / length);
    rest -= count * length;
    return `${count < 1e6 ? count : decimal(count)} ${name}`;
  });
  return (seconds < 0 ? "-" : "") + words.join(" ");
}

const formats = new Map();
function grouped(number, options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat("en", options));
  return formats.get(key).format(number);
}
