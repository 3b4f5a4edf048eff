// Sorts a table by the column whose head is clicked, and hides the rows that do not hold the text typed above it.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent;
    return text === "" || isNaN(text) ? text : Number(text);
  };
  const order = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");  // undefined values come last, whichever way
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = Array.from(body.rows, (row) => [value(row, head.cellIndex), row]);
      rows.sort(([a], [b]) => (down && a !== "" && b !== "" ? order(b, a) : order(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  }
  const filter = document.querySelector(`input[data-table="${table.id}"]`);
  filter?.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
