"use strict";
/* Shared by both views. Untrusted text is set as textContent, never as markup; pictures are images. */

const page = document.body.dataset;
const find = (selector, within = document) => within.querySelector(selector);
const statusLine = find("#status");

function say(sentence, isError = false) {
  statusLine.textContent = sentence;
  statusLine.classList.toggle("error", isError);
}

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  if (name) element.className = name;
  return element;
}

async function ask(path, body) {
  let response;
  try {
    response = await fetch(path, { method: "POST", body });
  } catch {
    throw new Error("No answer from grass-gnn. Is it still running?");
  }
  const answer = await response.json();
  if (response.ok) return answer;
  const problem = new Error(answer.error);
  problem.wait = Number(response.headers.get("Retry-After")) || 0;
  throw problem;
}

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/* Pictures are requested one at a time: first what the user clicked on, then plain structures, then explanations. */
const [URGENT, PLAIN, EXPLAINED] = [0, 1, 2];
const waiting = [];
let drawing = false;

function look(question, priority) {
  return new Promise((done, fail) => {
    const behind = waiting.findIndex((other) => other.priority > priority);
    waiting.splice(behind < 0 ? waiting.length : behind, 0, { question, priority, done, fail });
    drawNext();
  });
}

async function drawNext() {
  if (drawing || !waiting.length) return;
  drawing = true;
  const next = waiting.shift();
  try {
    next.done(await ask("/look", JSON.stringify(next.question)));
  } catch (problem) {
    if (problem.wait) {
      waiting.unshift(next);
      await pause(problem.wait);
    } else {
      next.fail(problem);
    }
  }
  drawing = false;
  drawNext();
}

function showValues(card, headline, values, outputs = values.length, rewiring = null) {
  const value = find(".value", card);
  const list = find(".values", card);
  value.replaceChildren();
  list.replaceChildren();
  const isSingle = values.length === 1;
  const under = rewiring === null ? "" : `rewiring ${rewiring + 1}`;
  const name = isSingle ? values[0].name : headline ? page.target : "";
  if (name || under) value.append(make("span", [name, under].filter(Boolean).join(", "), "unit"));
  if (headline) value.append(headline);
  if (isSingle) {
    const [only] = values;
    value.append(only.value);
    if (only.spread) value.append(make("span", ` ± ${only.spread}`, "spread"));
  }
  for (const one of values) {
    if (isSingle && one.share === null) continue;
    const item = make("li");
    if (!isSingle) item.append(make("span", one.name), make("span", one.value + (one.spread ? ` ± ${one.spread}` : "")));
    if (one.share !== null) {
      const meter = make("meter");
      meter.value = one.share;
      meter.setAttribute("aria-label", `probability, ${one.name}`);
      item.append(meter);
    }
    list.append(item);
  }
  if (outputs > values.length) list.append(make("li", `and ${outputs - values.length} more in the CSV`));
  value.hidden = !value.childNodes.length;
}

function showPicture(card, answer, words) {
  const image = find("img", card);
  image.src = answer.picture;
  image.alt = words;
  find(".paper", card).classList.remove("waiting", "loading");
  if (answer.caption) find(".facts", card).textContent = answer.caption;
}

find("#card").open = innerWidth > 600; // on a phone, the form comes first
