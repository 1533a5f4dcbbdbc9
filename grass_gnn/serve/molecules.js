"use strict";
/* Molecules: a form, and a card for each row of the answer, or a sortable table if there are many. */

const MOST_CARDS = 12;
let csv = "";

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    inSight.unobserve(entry.target);
    entry.target.dispatchEvent(new Event("insight"));
  }
}, { rootMargin: "300px" });

const nameOf = (row) => row.name || `Molecule ${row.number + 1}`;
const warningOf = (row) => (row.warning ? `Outside the training domain: ${row.warning}${row.similarity ? ` (similarity ${row.similarity})` : ""}.` : "");

/* --- Cards --- */

function makeCard(row, answer) {
  const card = find("#molecule").content.cloneNode(true).firstElementChild;
  find("h3", card).textContent = nameOf(row);
  find(".smiles", card).textContent = row.smiles;
  if (row.error) {
    card.classList.add("failed");
    for (const part of [".paper", ".rewirings", ".value", ".certainty"]) find(part, card).remove();
    find(".facts", card).textContent = `Line ${row.line}: no prediction (${row.error}).`;
    return card;
  }
  const warning = find(".warning", card);
  warning.hidden = !row.warning;
  warning.textContent = warningOf(row);
  showRow(card, row, answer);
  card.addEventListener("insight", () => showMolecule(card, row, answer), { once: true });
  inSight.observe(card);
  return card;
}

function showRow(card, row, answer) {
  showValues(card, row.headline, row.values, answer.outputs);
  find(".certainty", card).textContent = certainty(row, answer);
}

function certainty(row, answer) {
  const isOne = row.values.length === 1;
  if (isOne && row.values[0].interval) return `${answer.coverage} interval: ${row.values[0].interval}`;
  if (answer.calibrated) return row.values[0].share === null ? "± is one calibrated standard deviation" : "calibrated probability";
  return row.values[0].share === null ? "± over rewirings, uncalibrated" : "uncalibrated probability";
}

async function showMolecule(card, row, answer) {
  const question = { smiles: row.smiles, descriptors: row.descriptors };
  const name = nameOf(row);
  const facts = find(".facts", card);
  try {
    showPicture(card, await look({ ...question, plain: true }, PLAIN), name);
    facts.textContent = "Explaining …";
    const all = await look(question, EXPLAINED);
    addRewirings(card, row, answer, question, all);
  } catch (problem) {
    find(".paper", card).classList.remove("loading", "waiting");
    facts.textContent = problem.message;
  }
}

function addRewirings(card, row, answer, question, all) {
  const choices = find(".choices", card);
  const choose = async (button, rewiring) => {
    for (const other of choices.children) other.setAttribute("aria-pressed", other === button);
    card.dataset.rewiring = rewiring ?? "";
    find(".paper", card).classList.add("waiting");
    try {
      const found = rewiring === null ? all : await look({ ...question, rewiring }, URGENT);
      if (card.dataset.rewiring !== String(rewiring ?? "")) return; // another one was chosen in the meantime
      const words = rewiring === null ? all.words : `rewiring ${rewiring + 1}: added edges dashed`;
      showPicture(card, found, `${nameOf(row)}, ${words}`);
      if (rewiring === null) {
        showRow(card, row, answer);
      } else {
        showValues(card, all.headlines[rewiring], all.samples[rewiring], answer.outputs, rewiring);
        find(".certainty", card).textContent = "";
      }
    } catch (problem) {
      find(".paper", card).classList.remove("waiting");
      find(".facts", card).textContent = problem.message;
    }
  };
  const add = (text, label, rewiring) => {
    const button = make("button", text);
    button.type = "button";
    button.prepend(make("span", label));
    button.addEventListener("click", () => choose(button, rewiring));
    choices.append(button);
    return button;
  };
  const first = add("mean", `all ${page.rewirings}`, null);
  all.samples.forEach((sample, rewiring) => {
    const only = sample.length === 1 ? sample[0].value : "";
    add(all.headlines[rewiring] || only, `rewiring ${rewiring + 1}`, rewiring);
  });
  choose(first, null);
}

/* --- Table --- */

const asNumber = (text) => {
  const value = Number.parseFloat(text.replace("−", "-").replaceAll(",", ""));
  return Number.isNaN(value) ? Infinity : value;
};

function columnsOf(answer) {
  const values = answer.rows.find((row) => row.values.length)?.values || [];
  const shown = values.slice(0, 3).map((one, place) => ({
    title: one.name,
    text: (row) => (row.values[place] ? row.values[place].value + (row.values[place].spread ? ` ± ${row.values[place].spread}` : "") : ""),
    key: (row) => (row.values[place] ? asNumber(row.values[place].value) : Infinity),
    isNumber: true,
  }));
  const headline = answer.rows.some((row) => row.headline) ? [{ title: page.target || "Class", text: (row) => row.headline, key: (row) => row.headline }] : [];
  const interval = values.length === 1 && values[0].interval ? [{ title: `${answer.coverage} interval`, text: (row) => row.values[0]?.interval || "", key: (row) => (row.values[0] ? asNumber(row.values[0].interval) : Infinity), isNumber: true }] : [];
  return [
    { title: "Row", text: (row) => String(row.line), key: (row) => row.line, isNumber: true },
    { title: "Molecule", text: nameOf, key: nameOf },
    ...headline,
    ...shown,
    ...interval,
    { title: "Similarity", text: (row) => row.similarity, key: (row) => asNumber(row.similarity), isNumber: true },
    { title: "Note", text: (row) => row.error || (row.warning ? "outside the training domain" : ""), key: (row) => (row.error ? 2 : row.warning ? 1 : 0) },
  ];
}

function showTable(answer) {
  const columns = columnsOf(answer);
  const body = find("#rows tbody");
  const heads = columns.map((column) => {
    const head = make("th");
    head.scope = "col";
    head.classList.toggle("number", Boolean(column.isNumber));
    const button = make("button", column.title);
    button.type = "button";
    button.addEventListener("click", () => sort(column, head));
    head.append(button);
    return head;
  });
  const bodies = answer.rows.map((row) => ({ row, lines: makeLines(row, answer, columns) }));
  const sort = (column, head) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = (a, b) => (a < b ? -1 : Number(a > b));
    const isMissing = (one) => column.key(one.row) === Infinity; // comes last in both directions
    bodies.sort((a, b) => isMissing(a) - isMissing(b)
      || (down ? -1 : 1) * order(column.key(a.row), column.key(b.row))
      || a.row.number - b.row.number);
    body.append(...bodies.flatMap((one) => one.lines));
  };
  const line = make("tr");
  line.append(...heads);
  find("#rows thead").replaceChildren(line);
  body.replaceChildren(...bodies.flatMap((one) => one.lines));
}

/* A line of the table, and another one below it that shows the card while it is open. */
function makeLines(row, answer, columns) {
  const line = make("tr");
  line.classList.toggle("failed", Boolean(row.error));
  line.classList.toggle("outside", Boolean(row.warning));
  const details = make("tr", "", "details");
  details.hidden = true;
  columns.forEach((column, place) => {
    const cell = make("td", "", column.isNumber ? "number" : "");
    if (place === 1) {
      const button = make("button", column.text(row));
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        details.hidden = !details.hidden;
        button.setAttribute("aria-expanded", String(!details.hidden));
        if (details.childNodes.length) return;
        const whole = make("td");
        whole.colSpan = columns.length;
        const card = makeCard(row, answer);
        whole.append(card);
        details.append(whole);
        card.dispatchEvent(new Event("insight")); // requested explicitly, visible or not
      });
      cell.append(button);
    } else {
      cell.textContent = column.text(row);
    }
    line.append(cell);
  });
  return [line, details];
}

/* --- The form --- */

function clearResults() {
  waiting.length = 0;
  inSight.disconnect();
  csv = "";
  find("#results").hidden = true;
  find("#cards").replaceChildren();
  find("#rows tbody").replaceChildren();
}

function showAnswer(answer) {
  csv = answer.csv;
  answer.rows.forEach((row, number) => { row.number = number; });
  const isLong = answer.rows.length > MOST_CARDS;
  find("#table").hidden = !isLong;
  find("#cards").hidden = isLong;
  if (isLong) showTable(answer);
  else find("#cards").replaceChildren(...answer.rows.map((row) => makeCard(row, answer)));
  find("#results").hidden = false;
  const failed = answer.rows.filter((row) => row.error).length;
  const outside = answer.rows.filter((row) => row.warning).length;
  say([
    `${answer.rows.length - failed} predicted`,
    failed ? `, ${failed} failed (see below)` : "",
    outside ? `, ${outside} outside the training domain` : "",
    ".",
  ].join(""));
}

async function predict(body, isTable) {
  const button = find("#ask .primary");
  button.disabled = true;
  clearResults();
  say("Predicting …");
  try {
    showAnswer(await ask(isTable ? "/predict?as=table" : "/predict", body));
  } catch (problem) {
    say(problem.message, true);
  }
  button.disabled = false;
}

function predictFile(file) {
  if (!file) return;
  if (file.size > Number(page.mostBytes)) {
    clearResults();
    say(`The file is larger than ${Number(page.mostBytes) / 1e6} MB. Use grass-gnn predict for large tables.`, true);
    return;
  }
  predict(file, !/\.smi$/i.test(file.name));
}

function startMolecules() {
  const form = find("#ask");
  const text = find("#smiles");
  const file = find("#file");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    predict(text.value, false);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  file.addEventListener("change", () => {
    predictFile(file.files[0]);
    file.value = "";
  });
  find("#example").addEventListener("click", () => {
    text.value = "CC(=O)Oc1ccccc1C(=O)O aspirin\nCn1c(=O)c2c(ncn2C)n(C)c1=O caffeine\nCC(C)Cc1ccc(cc1)C(C)C(=O)O ibuprofen";
    form.requestSubmit();
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(name, (event) => {
      event.preventDefault();
      form.classList.toggle("dropping", name === "dragover");
      if (name === "drop") predictFile(event.dataTransfer.files[0]);
    });
  }
  find("#download").addEventListener("click", () => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = "predictions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

startMolecules();
