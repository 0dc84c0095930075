// Sorts, filters and exports the tables of a page. The page is complete without it.
// It has no less-than sign and no ampersand, because the page is also well-formed XML.
"use strict";
(() => {
  const order = new Intl.Collator("en", { numeric: true }).compare;
  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const text = cell => cell.textContent.replace(/\s+/g, " ").trim();
  const number = value => {
    // Signs of verdicts may stand before a number, words may not.
    const digits = value.replace(/\u2212/g, "-").match(/^[^a-z\d]*?([-+]?\d+(\.\d+)?(e[-+]?\d+)?)/i);
    return digits ? parseFloat(digits[1]) : NaN;
  };

  const sorting = (table, heading, column) => {
    const sort = () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const numeric = column > 0;
      const rows = [...body.rows].map((row, place) => {
        const value = row.cells[column] ? text(row.cells[column]) : "";
        return { row, place, value, size: numeric ? number(value) : NaN };
      });
      rows.sort((a, b) => {
        if (!a.value !== !b.value) return a.value ? -1 : 1;
        const numbers = !isNaN(a.size) ? !isNaN(b.size) : false;
        const difference = numbers ? a.size - b.size : order(a.value, b.value);
        return (down ? -difference : difference) || a.place - b.place;
      });
      body.append(...rows.map(entry => entry.row));
    };
    const button = make("button", { type: "button", className: "sort", title: "sort" }, ...heading.childNodes);
    button.setAttribute("aria-label", "sort by " + (heading.getAttribute("aria-label") || text(button)));
    button.addEventListener("click", sort);
    heading.append(button);
  };

  const separated = table => {
    const cell = value => {
      // A spreadsheet would compute a text that begins like a formula.
      // Numbers with a sign, and perhaps a unit, stay as they are. (text.csv_cell has the same rule.)
      const formula = /^([=@\t\r\uff0b\uff0d\uff1d\uff20]|[-+](?!\d+(\.\d+)?(e[-+]?\d+)?( ?[\w\u00b5%/]+)?$))/i;
      const safe = formula.test(value) ? "'" + value : value;
      return /[",\n]/.test(safe) ? '"' + safe.replace(/"/g, '""') + '"' : safe;
    };
    const rows = [[...table.tHead.rows].at(-1), ...table.tBodies[0].rows].filter(row => !row.hidden);
    const value = entry => cell(entry.querySelector("abbr")?.title || text(entry).replace(/\u2212/g, "-"));
    return rows.map(row => [...row.cells].map(value).join(",") + "\r\n").join("");
  };
  const save = table => {
    const address = URL.createObjectURL(new Blob([separated(table)], { type: "text/csv" }));
    const name = (table.caption ? text(table.caption) : "table").replace(/[^\w-]+/g, "-").slice(0, 60);
    make("a", { href: address, download: name + ".csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };
  const copy = (table, button) => {
    const area = make("textarea", { value: separated(table) });
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "copied" : "not copied";
    area.remove();
    button.focus();
  };

  const tools = (place, rows, name, ...buttons) => {
    const filter = make("input", { type: "search", placeholder: "filter" });
    filter.setAttribute("aria-label", "filter " + name);
    const shown = make("output", {});
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(/\s+/);
      const all = rows();
      for (const row of all) row.hidden = !wanted.every(word => row.textContent.toLowerCase().includes(word));
      shown.textContent = all.filter(row => !row.hidden).length + " of " + all.length;
    });
    const frame = make("div", { className: "framed" }, make("div", { className: "tools" }, filter, ...buttons, shown));
    place.replaceWith(frame);
    frame.append(place);
  };

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead || !table.tBodies[0] || 6 > table.tBodies[0].rows.length) continue;
    const name = table.caption ? text(table.caption) : "table";
    [...table.tHead.rows].at(-1).querySelectorAll("th").forEach(head => sorting(table, head, head.cellIndex));
    const action = (label, run) => {
      const button = make("button", { type: "button" }, label);
      button.setAttribute("aria-label", label + " " + name);
      button.addEventListener("click", () => run(table, button));
      return button;
    };
    const buttons = [make("b", { ariaHidden: "true" }, name), action("copy", copy), action("CSV", save)];
    tools(table.closest(".scroll") || table, () => [...table.tBodies[0].rows], name, ...buttons);
  }
  for (const list of document.querySelectorAll(".hosts")) {
    if (list.children.length > 5) tools(list, () => [...list.children], "hosts");
  }
})();
