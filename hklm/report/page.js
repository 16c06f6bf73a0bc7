"use strict";
// What is written into the page goes through textContent alone: no text is ever read as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const tokens = data.tokens;
const layers = data.layers.map((layer) => ({
  ...layer, values: Int8Array.from(atob(layer.values), (c) => c.charCodeAt(0)),
}));
const shown = layers[0].values.length / layers[0].units; // tokens whose cells are here
const chosen = { layer: 0, unit: 0 };

const byId = (id) => document.getElementById(id);

function step(layer, n, unit) { // -127 to 127
  return layers[layer].values[n * layers[layer].units + unit];
}

function value(layer, n, unit) {
  return (step(layer, n, unit) / 127) * layers[layer].limit;
}

function ofToken(n) {
  return [
    ["token", tokens.symbol[n]],
    ["surprisal", `${tokens.bits[n].toFixed(2)} bits`],
    ["entropy", `${tokens.entropy[n].toFixed(2)} bits`],
    ["entropy reduction", `${tokens.reduction[n].toFixed(2)} bits`],
    ["rank", String(tokens.rank[n])],
    ["word", `${tokens.word[n]} (${tokens.word_bits[n].toFixed(2)} bits)`],
    ["unknown", tokens.unknown[n] ? "yes" : "no"],
    ["line", String(tokens.line[n])],
    ["index", String(tokens.index[n])],
  ];
}

function ofUnit(layer, unit, n) {
  return [
    ["token", tokens.symbol[n]],
    ["layer", String(layer)],
    ["unit", String(unit)],
    [layers[layer].what, value(layer, n, unit).toFixed(2)],
    ["line", String(tokens.line[n])],
    ["index", String(tokens.index[n])],
  ];
}

function show(panel, rows) {
  const list = document.createElement("dl");
  for (const [name, what] of rows) {
    const row = document.createElement("div");
    row.append(document.createElement("dt"), document.createElement("dd"));
    row.firstChild.textContent = name;
    row.lastChild.textContent = what;
    list.append(row);
  }
  panel.replaceChildren(list);
}

// A text whose tokens are pointed at, or gone to by keyboard; one of them takes the Tab key.
function readable(text, panel, rowsOf) {
  const spans = [...text.querySelectorAll("span[role]")];
  const at = (event) => spans.indexOf(event.target.closest("span[role]"));
  const nextLine = (n, by) => {
    const line = tokens.line[n] + by;
    const found = spans.findIndex((unused, other) => tokens.line[other] === line);
    return found < 0 ? n : found;
  };
  text.addEventListener("mouseover", (event) => {
    if (at(event) >= 0) show(panel, rowsOf(at(event)));
  });
  text.addEventListener("focusin", (event) => {
    const n = at(event);
    if (n < 0) return;
    for (const span of text.querySelectorAll('[tabindex="0"]')) {
      span.tabIndex = -1;
      span.ariaSelected = "false";
    }
    spans[n].tabIndex = 0;
    spans[n].ariaSelected = "true";
    show(panel, rowsOf(n));
  });
  text.addEventListener("keydown", (event) => {
    const n = at(event);
    const to = {
      ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: spans.length - 1,
      ArrowDown: nextLine(n, 1), ArrowUp: nextLine(n, -1),
    }[event.key];
    if (n < 0 || to === undefined) return;
    event.preventDefault();
    if (spans[to]) spans[to].focus();
  });
}

function drawMap(box) {
  const layer = Number(box.dataset.layer);
  const units = layers[layer].units;
  const canvas = box.querySelector("canvas");
  const wide = Math.max(1, Math.min(8, Math.floor(900 / shown)));
  const high = Math.max(2, Math.min(12, Math.floor(320 / units)));
  canvas.width = shown;
  canvas.height = units;
  canvas.style.width = `${shown * wide}px`;
  canvas.style.height = `${units * high}px`;
  const context = canvas.getContext("2d");
  const image = context.createImageData(shown, units);
  for (let unit = 0; unit < units; unit++) {
    for (let n = 0; n < shown; n++) {
      const colour = data.palette[step(layer, n, unit) + 127];
      image.data.set([...colour, 255], 4 * (unit * shown + n));
    }
  }
  context.putImageData(image, 0, 0);

  const here = { n: 0, unit: 0 };
  const mark = box.querySelector(".here");
  const go = (n, unit) => {
    here.n = Math.max(0, Math.min(shown - 1, n));
    here.unit = Math.max(0, Math.min(units - 1, unit));
    mark.style.cssText = `left:${here.n * wide}px;width:${Math.max(2, wide)}px;` +
      `height:${units * high}px`;
    show(byId("cell-details"), ofUnit(layer, here.unit, here.n));
  };
  canvas.addEventListener("mousemove", (event) => {
    go(Math.floor(event.offsetX / wide), Math.floor(event.offsetY / high));
  });
  canvas.addEventListener("focus", () => go(here.n, here.unit));
  canvas.addEventListener("click", () => choose(layer, here.unit));
  canvas.addEventListener("keydown", (event) => {
    const move = {
      ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1],
    }[event.key];
    if (move) go(here.n + move[0], here.unit + move[1]);
    else if (event.key === "Enter") choose(layer, here.unit);
    else return;
    event.preventDefault();
  });
  box.high = high;
}

function choose(layer, unit) {
  chosen.layer = layer;
  chosen.unit = Math.max(0, Math.min(layers[layer].units - 1, unit || 0));
  byId("layer").value = String(layer);
  byId("unit").max = String(layers[layer].units - 1);
  byId("unit").value = String(chosen.unit);
  const limit = layers[layer].limit;
  byId("chosen").textContent = `layer ${layer}, unit ${chosen.unit} of ${layers[layer].units}`;
  document.querySelector("#cell-legend > span").textContent = `${layers[layer].what}, a plain number`;
  document.querySelector("#cell-legend .low").textContent = (-limit).toFixed(1);
  document.querySelector("#cell-legend .high").textContent = limit.toFixed(1);
  byId("cell-text").querySelectorAll("span[role]").forEach((span, n) => {
    const place = step(layer, n, chosen.unit) + 127;
    span.style.background = `rgb(${data.palette[place]})`;
    span.style.color = data.inks[place];
    span.ariaLabel = `${tokens.symbol[n]}: ${value(layer, n, chosen.unit).toFixed(2)}`;
  });
  for (const box of document.querySelectorAll(".map")) {
    const line = box.querySelector(".chosen");
    line.hidden = Number(box.dataset.layer) !== layer;
    line.style.cssText = `top:${chosen.unit * box.high}px;height:${Math.max(4, box.high)}px;` +
      `width:${box.querySelector("canvas").style.width}`;
  }
}

// The beginning of the text once more, to be coloured by a unit.
function copyText() {
  for (const node of byId("text").childNodes) {
    if (node.dataset && Number(node.dataset.n) >= shown) break;
    byId("cell-text").append(node.cloneNode(true));
  }
}

copyText();
readable(byId("text"), byId("text-details"), ofToken);
readable(byId("cell-text"), byId("cell-details"), (n) => ofUnit(chosen.layer, chosen.unit, n));
document.querySelectorAll(".map").forEach(drawMap);
byId("layer").addEventListener("change", (event) => choose(Number(event.target.value), chosen.unit));
byId("unit").addEventListener("input", (event) => choose(chosen.layer, Number(event.target.value)));
document.querySelectorAll("button[data-unit]").forEach((button) => {
  button.addEventListener("click", () => {
    choose(Number(button.dataset.layer), Number(button.dataset.unit));
  });
});
const first = document.querySelector("button[data-unit]");
choose(first ? Number(first.dataset.layer) : 0, first ? Number(first.dataset.unit) : 0);
show(byId("text-details"), [["", "no token is pointed at"]]);
show(byId("cell-details"), [["", "no place is pointed at"]]);
