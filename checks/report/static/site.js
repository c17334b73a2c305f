// Comfort on top of complete pages: finding, stepping, and looking at one state's arrows.
"use strict";

const MOST = 30;

function find(words) {
  // Every word must occur; what has them in its name comes first, shorter names before longer ones.
  const hits = [];
  for (const entry of window.KVESCROW_INDEX || []) {
    const name = entry.name.toLowerCase();
    const whole = name + " " + entry.text.toLowerCase();
    if (words.every((word) => whole.includes(word))) {
      hits.push([words.every((word) => name.includes(word)) ? 0 : 1, entry.name.length, entry]);
    }
  }
  hits.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  return hits.slice(0, MOST).map((hit) => hit[2]);
}

function startSearch() {
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  let chosen = -1;

  function choose(number) {
    chosen = number;
    [...list.children].forEach((item, place) => {
      item.setAttribute("aria-selected", String(place === number));
      if (place === number) {
        input.setAttribute("aria-activedescendant", item.id);
        item.scrollIntoView({ block: "nearest" });
      }
    });
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.replaceChildren();
    const hits = words.length ? find(words) : [];
    hits.forEach((entry, number) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      const small = document.createElement("small");
      item.id = "found-" + number;
      item.setAttribute("role", "option");
      link.href = entry.href;
      link.tabIndex = -1;
      link.textContent = entry.name;
      small.textContent = entry.kind + ": " + entry.text;
      link.append(small);
      link.addEventListener("click", close);
      item.append(link);
      list.append(item);
    });
    if (words.length && !hits.length) {
      const item = document.createElement("li");
      item.textContent = "nothing found";
      list.append(item);
    }
    list.hidden = !words.length;
    input.setAttribute("aria-expanded", String(words.length > 0));
    choose(hits.length ? 0 : -1);
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("keydown", (event) => {
    const links = list.querySelectorAll("a");
    if (event.key === "Escape") {
      close();
    } else if (event.key === "Enter" && chosen >= 0 && !list.hidden) {
      links[chosen].click();
      input.blur();
    } else if (event.key === "ArrowDown" && links.length) {
      event.preventDefault();
      choose((chosen + 1) % links.length);
    } else if (event.key === "ArrowUp" && links.length) {
      event.preventDefault();
      choose((chosen + links.length - 1) % links.length);
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      input.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) {
      close();
    }
  });
}

function startStepper(article) {
  const steps = [...article.querySelectorAll(".step")];
  const bar = article.querySelector(".stepper");
  const range = bar.querySelector("input[type=range]");
  const [back, on, output] = [bar.querySelector(".back"), bar.querySelector(".on"), bar.querySelector("output")];

  function go(number) {
    const here = Math.max(0, Math.min(steps.length - 1, number));
    steps.forEach((step, place) => step.classList.toggle("current", place === here));
    article.classList.toggle("first", here === 0);
    range.value = here;
    back.disabled = here === 0;
    on.disabled = here === steps.length - 1;
    output.textContent = "step " + here + " of " + (steps.length - 1);
  }

  function everyField(yes) {
    article.classList.toggle("whole", yes);
  }

  article.classList.add("stepping");
  bar.hidden = false;
  back.addEventListener("click", () => go(Number(range.value) - 1));
  on.addEventListener("click", () => go(Number(range.value) + 1));
  range.addEventListener("input", () => go(Number(range.value)));
  bar.querySelector(".all").addEventListener("change", (event) => everyField(event.target.checked));
  article.addEventListener("keydown", (event) => {
    if (event.target === range) {
      return;
    }
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      go(Number(range.value) + (event.key === "ArrowRight" ? 1 : -1));
    }
  });
  go(0);
}

function startDiagram(diagram) {
  const parts = [...diagram.querySelectorAll(".change, .lane")];

  function light(name) {
    for (const part of parts) {
      part.classList.toggle("dim", Boolean(name) && !part.dataset.states.split(" ").includes(name));
    }
  }

  for (const state of diagram.querySelectorAll(".state")) {
    for (const event of ["mouseenter", "focus"]) {
      state.addEventListener(event, () => light(state.dataset.state));
    }
    for (const event of ["mouseleave", "blur"]) {
      state.addEventListener(event, () => light(""));
    }
  }
}

startSearch();
document.querySelectorAll(".counterexample").forEach(startStepper);
document.querySelectorAll("svg.diagram").forEach(startDiagram);
