"use strict";
const tip = document.getElementById("tip");

function nearest(svg, event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  let best = null, least = 14 * 14;
  for (const dot of svg.querySelectorAll("[data-t]")) {
    const dx = dot.cx.baseVal.value - at.x, dy = dot.cy.baseVal.value - at.y, d = dx * dx + dy * dy;
    if (d < least) { least = d; best = dot; }
  }
  return best;
}

function leave() {
  tip.hidden = true;
  document.querySelectorAll(".pointed").forEach((dot) => dot.classList.remove("pointed"));
}

function point(event) {
  const dot = nearest(event.currentTarget, event);
  leave();
  if (!dot) return;
  dot.classList.add("pointed");
  tip.textContent = dot.dataset.t;
  tip.hidden = false;
  const width = document.documentElement.clientWidth;
  tip.style.left = Math.max(4, Math.min(event.clientX + 12, width - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 10) + "px";
}

for (const svg of document.querySelectorAll("svg.hover")) {
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", leave);
}
addEventListener("scroll", leave, { passive: true });

for (const box of document.querySelectorAll("input.find")) {
  box.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    for (const dot of box.parentElement.querySelectorAll("svg.map [data-t]"))
      dot.classList.toggle("found", wanted !== "" && dot.dataset.t.toLowerCase().includes(wanted));
    box.parentElement.classList.toggle("finding", wanted !== "");
  });
}

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
document.documentElement.classList.add("ready");
