// Colours and patterns: a job has the same ones everywhere, and can be read without the colours.

const dark = matchMedia("(prefers-color-scheme: dark)");

const LIGHT = {
  ink: "#1c2126", muted: "#59636e", line: "#e3e6e8", strong: "#c3c9ce", now: "#b3261e", back: "#ffffff",
  fills: ["#bcd6ee", "#f6d7ac", "#c0e2c9", "#e3c9e8", "#f5c5be", "#dbe2ab", "#bbe2e2", "#e0d3c0"],
  edges: ["#2f6ea6", "#9a5f14", "#2f7d46", "#824b92", "#ab4034", "#66731b", "#21726f", "#775f3e"],
};
const DARK = {
  ink: "#e8ebed", muted: "#98a3ad", line: "#282e33", strong: "#414a52", now: "#ff8a80", back: "#1a1e22",
  fills: ["#26486a", "#664618", "#245438", "#523059", "#6a2d27", "#474f1f", "#1f5151", "#50432f"],
  edges: ["#7fb4e6", "#e3a95c", "#7cc794", "#c795d6", "#e98e84", "#b9c765", "#74c9c9", "#c9ae86"],
};

export const colours = () => (dark.matches ? DARK : LIGHT);
export const onScheme = (changed, signal) => dark.addEventListener("change", changed, { signal });

const PATTERNS = ["plain", "rising", "falling", "dots"];
const made = new Map();

function hash(text) {
  let value = 2166136261;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 16777619);
  return value >>> 0;
}

/** Fill and edge of a job's bars. */
export function jobPaint(context, jobId) {
  const code = hash(jobId);
  const { fills, edges } = colours();
  const hue = code % fills.length;
  const pattern = PATTERNS[(code >>> 8) % PATTERNS.length];
  return { fill: patternOf(context, pattern, fills[hue], `${edges[hue]}59`), edge: edges[hue] };
}

export function plainPaint(context, pattern, strong = false) {
  const { line, strong: darker, back } = colours();
  return patternOf(context, pattern, strong ? line : back, darker);
}

/** A pattern by its name and its two colours; made once. */
function patternOf(context, pattern, ground, figure) {
  const key = `${pattern}${ground}${figure}`;
  if (!made.has(key)) made.set(key, pattern === "plain" ? ground : context.createPattern(tile(pattern, ground, figure), "repeat"));
  return made.get(key);
}

const SIZE = 8;

function tile(pattern, ground, figure) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  const draw = canvas.getContext("2d");
  draw.fillStyle = ground;
  draw.fillRect(0, 0, SIZE, SIZE);
  draw.fillStyle = draw.strokeStyle = figure;
  draw.lineWidth = 1.4;
  if (pattern === "dots") draw.fillRect(2, 2, 2, 2), draw.fillRect(6, 6, 2, 2);
  if (pattern === "rising" || pattern === "cross") slanted(draw, 1);
  if (pattern === "falling" || pattern === "cross") slanted(draw, -1);
  return canvas;
}

function slanted(draw, way) {
  draw.beginPath();
  for (const shift of [-SIZE, 0, SIZE]) {
    draw.moveTo(shift, way > 0 ? SIZE : 0);
    draw.lineTo(shift + SIZE, way > 0 ? 0 : SIZE);
  }
  draw.stroke();
}
