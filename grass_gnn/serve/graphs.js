"use strict";
/* Other graphs: one at a time, chosen by split, number and rewiring. */

function startGraphs() {
  const [split, number, rewiring] = ["#split", "#number", "#rewiring"].map((id) => find(id));
  const card = find(".card");
  const show = async () => {
    number.max = split.selectedOptions[0].dataset.graphs - 1;
    const question = {
      split: split.value,
      number: Math.min(Math.max(0, Math.trunc(Number(number.value))), Number(number.max)),
      rewiring: rewiring.value === "" ? null : Number(rewiring.value),
    };
    number.value = question.number;
    waiting.length = 0;
    say("Drawing …");
    find(".paper", card).classList.add("waiting");
    try {
      const answer = await look(question, URGENT);
      find("#results").hidden = false;
      const title = `Graph ${question.number}, ${rewiring.value === "" ? "all rewirings" : `rewiring ${question.rewiring + 1}`}`;
      find("h3", card).textContent = title;
      showPicture(card, answer, `${title}: edges by attention`);
      showValues(card, answer.headline, answer.values || []);
      find("dl", card).replaceChildren(...answer.facts.map((fact) => {
        const row = make("div");
        row.append(make("dt", fact.name), make("dd", fact.value));
        return row;
      }));
      find(".classes", card).replaceChildren(...answer.classes.map((one) => {
        const item = make("li", one.name);
        const dot = make("i");
        dot.style.background = one.color;
        item.prepend(dot);
        return item;
      }));
      say("");
    } catch (problem) {
      find("#results").hidden = true;
      say(problem.message, true);
    }
  };
  find("#choose").addEventListener("submit", (event) => event.preventDefault());
  for (const field of [split, number, rewiring]) field.addEventListener("change", show);
  show();
}

if (find("#choose")) startGraphs();
