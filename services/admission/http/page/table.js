// A table whose rows are kept by key: what did not change is not touched, so focus and reading stay where they are.

import { el, say } from "./text.js";

const NOTHING = new Set(["", "–", "none"]);

/**
 * Columns: `name`, `text(row)`, or `node(row)` with `text(row)` as what tells whether it changed; `kind` "number".
 */
export class Table {
  constructor(place, { caption, columns, key, empty }) {
    this.columns = columns;
    this.key = key;
    this.rows = new Map();
    this.body = el("tbody");
    this.empty = el("p", { class: "hint", hidden: true }, empty);
    const heads = columns.map((column) => el("th", { scope: "col", class: column.kind }, column.name));
    const head = el("thead", {}, el("tr", {}, ...heads));
    this.table = el("table", {}, el("caption", { class: "unseen" }, caption), head, this.body);
    place.replaceChildren(el("div", { class: "scroll" }, this.table), this.empty);
  }

  update(items) {
    this.empty.hidden = items.length > 0;
    this.table.hidden = items.length === 0;
    const seen = new Set();
    let before = this.body.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      seen.add(key);
      const row = this.rows.get(key) ?? this.#added(key);
      this.#fill(row, item);
      if (row === before) before = before.nextElementSibling;
      else this.body.insertBefore(row, before);
    }
    for (const [key, row] of this.rows) {
      if (seen.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
  }

  #added(key) {
    const row = el("tr");
    this.columns.forEach((column, index) => {
      const attributes = { class: column.kind, "data-name": column.name };
      row.append(index ? el("td", attributes) : el("th", { ...attributes, scope: "row" }));
    });
    this.rows.set(key, row);
    return row;
  }

  #fill(row, item) {
    this.columns.forEach((column, index) => {
      const cell = row.children[index];
      const text = column.text(item);
      cell.toggleAttribute("data-none", NOTHING.has(text));
      if (!column.node) say(cell, text);
      else if (cell.said !== text) {
        cell.said = text;
        cell.replaceChildren(column.node(item));
      }
    });
  }
}
