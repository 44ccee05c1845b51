// What a reader without eyes, colours or a mouse would miss: a list of complaints, empty if there are none.
const found = [];
const shown = (element) => element.checkVisibility() && !element.closest("[hidden]");
const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
const where = (element) => `${element.tagName.toLowerCase()}#${element.id}.${element.className}`;

const name = (element) =>
  element.getAttribute("aria-label")?.trim() ||
  (element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim() ||
  [...(element.labels ?? [])].map((label) => label.textContent).join(" ").trim() ||
  element.querySelector?.("caption")?.textContent.trim() ||
  element.textContent.trim();

for (const selector of ["main", "header", "html[lang]", "title"]) {
  if (document.querySelectorAll(selector).length !== 1) found.push(`not one ${selector}`);
}
if (all("h1").length !== 1) found.push(`${all("h1").length} headings of the first level`);
const levels = all("h1,h2,h3,h4").map((each) => Number(each.tagName[1]));
levels.forEach((level, at) => at && level > levels[at - 1] + 1 && found.push(`from heading ${levels[at - 1]} to ${level}`));
for (const each of all("a, button, input, select, section, article, nav, table, meter, progress, [role], [tabindex='0']")) {
  if (each.matches("[role=status], [role=alert]")) continue;
  if (!name(each)) found.push(`no name: ${where(each)}`);
}
for (const each of all("img")) if (!each.hasAttribute("alt")) found.push(`no alt: ${where(each)}`);
const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: #${id}`);
for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
  for (const each of all(`[${attribute}]`)) {
    for (const id of each.getAttribute(attribute).split(" ")) if (!document.getElementById(id)) found.push(`no #${id} for ${where(each)}`);
  }
}

// ---- contrast (WCAG 2: 4.5 to 1)

const colour = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
function ground(element) {
  for (let at = element; at; at = at.parentElement) {
    const [r, g, b, alpha = 1] = colour(getComputedStyle(at).backgroundColor);
    if (alpha > 0.99) return [r, g, b];
  }
  return [255, 255, 255];
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !shown(element)) continue;
  const [a, b] = [light(colour(getComputedStyle(element).color)), light(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(1)}: ${where(element)} ${walker.currentNode.textContent.slice(0, 30)}`);
}
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
if (wide > 0) found.push(`${wide} px wider than the window`);
if (matchMedia("(max-width: 640px)").matches) {
  for (const each of all(".scroll")) {
    const hidden = each.scrollWidth - each.clientWidth;
    if (hidden > 0) found.push(`${hidden} px hidden: ${name(each.firstElementChild).slice(0, 30)}`);
  }
}
return [...new Set(found)];
