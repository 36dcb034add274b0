// The ledger's filter: by paper and by verdict, with the choice kept in the address so that it can be shared.
// Without this script the whole table shows; the controls are made here, so that none is ever dead.
(() => {
  "use strict";
  const form = document.querySelector("form.claims-filter");
  const table = document.querySelector("table.claims-ledger");
  if (!form || !table) return;
  const rows = [...table.querySelectorAll("tbody tr[data-paper][data-verdict]")];
  const VERDICTS = ["holds", "holds in direction", "inconclusive", "contradicted", "not tested"];

  function choice(name, label, options) {
    let select = form.elements.namedItem(name);
    if (!select) {
      const holder = document.createElement("label");
      select = document.createElement("select");
      select.name = name;
      holder.append(label, select);
      form.append(holder);
    }
    if (select.options.length === 0) {
      select.add(new Option("all", ""));
      for (const [value, text] of options) select.add(new Option(text, value));
    }
    return select;
  }

  const papers = new Map(rows.map((row) => [row.dataset.paper, row.dataset.paperName || row.dataset.paper]));
  const present = new Set(rows.map((row) => row.dataset.verdict));
  const paper = choice("paper", "Paper", papers);
  const verdict = choice("verdict", "Verdict", VERDICTS.filter((word) => present.has(word)).map((word) => [word, word]));

  let reset = form.querySelector("button[type=reset]");
  if (!reset) {
    reset = document.createElement("button");
    reset.type = "reset";
    reset.textContent = "Show all";
    form.append(reset);
  }
  let count = form.querySelector("[aria-live]");
  if (!count) {
    count = document.createElement("output");
    count.setAttribute("aria-live", "polite");
    form.append(count);
  }

  function show() {
    let shown = 0;
    for (const row of rows) {
      const fits = (!paper.value || row.dataset.paper === paper.value)
        && (!verdict.value || row.dataset.verdict === verdict.value);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} claims`;
  }

  function read() {
    const query = new URLSearchParams(location.search);
    for (const select of [paper, verdict]) {
      const wanted = query.get(select.name) || "";
      select.value = [...select.options].some((option) => option.value === wanted) ? wanted : "";
    }
    show();
  }

  function remember() {
    const query = new URLSearchParams(location.search);
    for (const select of [paper, verdict]) {
      if (select.value) query.set(select.name, select.value);
      else query.delete(select.name);
    }
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text ? `?${text}` : "") + location.hash);
    show();
  }

  form.addEventListener("change", remember);
  form.addEventListener("submit", (event) => event.preventDefault());
  // The browser empties the controls only after this event.
  form.addEventListener("reset", () => setTimeout(remember));
  addEventListener("popstate", read);
  form.hidden = false;
  read();
})();
