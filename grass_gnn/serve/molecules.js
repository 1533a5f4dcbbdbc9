"use strict";
/* Molecules: a form, and a card for each row of the answer. */

let table = "";
const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    inSight.unobserve(entry.target);
    entry.target.dispatchEvent(new Event("insight"));
  }
}, { rootMargin: "300px" });

function showRow(row, number, outputs) {
  const card = find("#molecule").content.cloneNode(true).firstElementChild;
  find("h3", card).textContent = row.name || `Molecule ${number + 1}`;
  find(".smiles", card).textContent = row.smiles;
  const warning = find(".warning", card);
  if (row.error) {
    card.classList.add("failed");
    find(".paper", card).remove();
    find(".rewirings", card).remove();
    find(".value", card).remove();
    find(".facts", card).textContent = `Line ${row.line}: no prediction, as ${row.error}.`;
    return card;
  }
  const similarity = row.similarity ? ` (similarity ${row.similarity})` : "";
  warning.hidden = !row.warning;
  warning.textContent = row.warning ? `Take care: ${row.warning}${similarity}.` : "";
  showValues(card, row.headline, row.values, outputs);
  card.addEventListener("insight", () => showMolecule(card, row, outputs), { once: true });
  inSight.observe(card);
  return card;
}

async function showMolecule(card, row, outputs) {
  const question = { smiles: row.smiles, descriptors: row.descriptors, rewiring: null };
  const name = find("h3", card).textContent;
  let all;
  try {
    all = await look(question);
  } catch (problem) {
    find(".facts", card).textContent = problem.message;
    return;
  }
  const choices = find(".choices", card);
  const choose = async (button, rewiring) => {
    for (const other of choices.children) other.setAttribute("aria-pressed", other === button);
    card.dataset.rewiring = rewiring ?? "";
    find(".paper", card).classList.add("waiting");
    try {
      const answer = rewiring === null ? all : await look({ ...question, rewiring }, true);
      if (card.dataset.rewiring !== String(rewiring ?? "")) return; // another was chosen meanwhile
      const words = rewiring === null ? "attention by bond" : `rewiring ${rewiring + 1}: added edges dashed`;
      showPicture(card, answer, `${name}, ${words}`);
      if (rewiring === null) showValues(card, row.headline, row.values, outputs);
      else showValues(card, all.headlines[rewiring], all.samples[rewiring], outputs, rewiring);
    } catch (problem) {
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

async function predict(body, isTable) {
  const button = find("#ask .primary");
  button.disabled = true;
  waiting.length = 0;
  inSight.disconnect();
  say("Predicting …");
  try {
    const answer = await ask(isTable ? "/predict?as=table" : "/predict", body);
    table = answer.csv;
    find("#cards").replaceChildren(...answer.rows.map((row, number) => showRow(row, number, answer.outputs)));
    find("#results").hidden = false;
    const failed = answer.rows.filter((row) => row.error).length;
    const done = answer.rows.length - failed;
    say(`${done} predicted${failed ? `, ${failed} not: the reasons stand below` : ""}.`);
  } catch (problem) {
    say(problem.message, true);
  }
  button.disabled = false;
}

function predictFile(file) {
  if (!file) return;
  if (file.size > Number(page.mostBytes)) {
    say(`The page takes up to ${Number(page.mostBytes) / 1e6} MB at a time.`, true);
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
    link.href = URL.createObjectURL(new Blob([table], { type: "text/csv" }));
    link.download = "predictions.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

startMolecules();
