"use strict";
/* Forge works without this file; with it, clocks tick and a few gestures are easier. */

// Time passes from the server's own "now", so that a wrong clock here does not show.
function clock(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}
function tick() {
  for (const time of document.querySelectorAll("time[data-now]")) {
    time.seenAt ??= performance.now();
    const now = Date.parse(time.dataset.now) + performance.now() - time.seenAt;
    const { since, until } = time.dataset;
    const text = clock(since ? now - Date.parse(since) : Date.parse(until) - now);
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(tick, 250);
document.addEventListener("DOMContentLoaded", tick);

// A button that is replaced between press and release is never clicked. While one is pressed, the
// newest progress waits; the final event does not.
let pressed = false;
let waiting = null;
function press(event) {
  pressed = Boolean(event.target.closest?.("#progress button"));
}
function release() {
  pressed = false;
  if (waiting) setTimeout(() => { show(waiting); waiting = null; });
}
function show(held) {
  if (held) htmx.swap(held.target, held.data, { swapStyle: "innerHTML" });
}
document.addEventListener("pointerdown", press);
document.addEventListener("keydown", press);
for (const end of ["pointerup", "pointercancel", "keyup"]) document.addEventListener(end, release);
document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const { type, data } = event.detail;
  if (type === "done") waiting = null;
  if (type !== "progress" || !pressed) return;
  event.preventDefault();
  waiting = { target: event.target, data };
});

document.addEventListener("htmx:afterSwap", () => {
  tick();
  const state = document.querySelector("[data-title]");
  if (state) document.title = state.dataset.title;
});
function connection(lost) {
  for (const line of document.querySelectorAll(".lost")) line.hidden = !lost;
}
document.addEventListener("htmx:sseError", () => connection(true));
for (const name of ["htmx:sseOpen", "htmx:sseClose"]) document.addEventListener(name, () => connection(false));

// <button type="button" hidden data-copy="#id-of-the-input" data-copied="Copied">Copy</button>
async function copy(button) {
  const source = document.querySelector(button.dataset.copy);
  const text = source.value ?? source.textContent.trim();
  try {
    await navigator.clipboard.writeText(text);
  } catch { // Browsers offer the clipboard on https and localhost only.
    source.select?.();
    document.execCommand("copy");
  }
  const label = button.textContent;
  button.textContent = button.dataset.copied ?? label;
  setTimeout(() => { button.textContent = label; }, 1500);
}
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (button) copy(button);
  if (event.target.matches(".clone input[readonly]")) event.target.select();
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

// The import form shows which name an empty field will take.
function suggest(field) {
  const source = document.getElementById(field.dataset.suggestFrom);
  const usual = field.placeholder;
  const follow = () => {
    const path = source.value.trim().split(/[?#]/)[0].replace(/\/+$/, "");
    const name = /^https?:\/\/[^/]+\//.test(path) ? path.split("/").pop().replace(/\.git$/, "") : "";
    field.placeholder = name || usual;
  };
  source?.addEventListener("input", follow);
  if (source) follow();
}
document.addEventListener("DOMContentLoaded", () => {
  for (const field of document.querySelectorAll("input[data-suggest-from]")) suggest(field);
});
