"use strict";
// Pages work without this. It keeps them up to date, asks in dialogs, knows keys, and remembers how pages look.

const EVERY_MS = 2000;
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const kept = {
  get: (name) => { try { return localStorage.getItem("tidemill." + name); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem("tidemill." + name, value); } catch { /* private windows */ } },
};

// Moments: as the server says them (app/console/web/words.py).

const STEPS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function span(seconds) {
  const parts = [];
  let left = seconds;
  for (const [unit, size] of STEPS) {
    const count = Math.floor(left / size);
    if (count) { parts.push(count + unit); left -= count * size; }
  }
  return parts.slice(0, 2).join(" ");
}

function distance(moment) {
  const seconds = Math.trunc((Date.now() + ahead - moment) / 1000);
  if (seconds === 0) return "now";
  return seconds < 0 ? "in " + span(-seconds) : span(seconds) + " ago";
}

// How far the clock of the server is ahead of this one.
let ahead = 0;

function tick() {
  for (const each of all("time[datetime]")) {
    const words = distance(Date.parse(each.dateTime));
    if (each.textContent !== words) each.textContent = words;
  }
}

// The living part: what is new is put in, what stays is left alone, with its focus, its scroll and what is open.

const same = (old, fresh) => old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && (old.id || "") === (fresh.id || "");

function attributes(old, fresh) {
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    // What the person has opened stays open.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
}

function merge(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  const wasOpen = old.nodeName === "DETAILS" && old.open;
  attributes(old, fresh);
  if (wasOpen) old.open = true;
  // What somebody types is not taken from him.
  if (old === document.activeElement && old.matches("input, select, textarea")) return;
  children(old, fresh);
}

function children(old, fresh) {
  const named = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const known = next.id && named.get(next.id);
    if (known && known !== at && same(known, next)) {
      // Not moved by itself: that would take its focus away. What stands before it goes instead, if it is gone.
      while (at && at !== known && !(at.id && one("#" + CSS.escape(at.id), fresh))) { const gone = at; at = at.nextSibling; gone.remove(); }
      if (at !== known) old.insertBefore(known, at);
      merge(known, next);
      at = known.nextSibling;
    } else if (at && same(at, next)) {
      merge(at, next);
      at = at.nextSibling;
    } else {
      old.insertBefore(next, at);
    }
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

function parsed(text) {
  const template = document.createElement("template");
  template.innerHTML = text;
  return template.content;
}

const live = { on: kept.get("live") !== "off", tag: null, timer: 0, asks: false };

async function refresh() {
  const region = one("[data-live]");
  if (!region || !live.on || live.asks || document.visibilityState !== "visible") return;
  live.asks = true;
  try {
    const headers = { "X-Tidemill-Live": "1" };
    if (live.tag) headers["If-None-Match"] = live.tag;
    const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "manual" });
    if (answer.status === 401 || answer.status === 403 || answer.type === "opaqueredirect") { location.reload(); return; }
    if (answer.headers.get("date")) ahead = Math.abs(Date.parse(answer.headers.get("date")) - Date.now()) > 3000 ? Date.parse(answer.headers.get("date")) - Date.now() : 0;
    if (answer.status === 200) {
      live.tag = answer.headers.get("etag");
      const fresh = document.createElement("div");
      fresh.append(parsed(await answer.text()));
      children(region, fresh);
      tick();
    }
    tell(answer.ok || answer.status === 304 ? "" : "No answer");
  } catch {
    tell("No answer");
  } finally {
    live.asks = false;
  }
}

function tell(trouble) {
  const button = one("[data-live-toggle]");
  if (!button) return;
  const words = trouble && live.on ? trouble : live.on ? "Live" : "Paused";
  button.classList.toggle("lost", Boolean(trouble));
  button.setAttribute("aria-pressed", String(live.on));
  const text = one("[data-live-words]", button);
  if (text.textContent !== words) text.textContent = words;
}

function toggleLive() {
  live.on = !live.on;
  kept.set("live", live.on ? "on" : "off");
  tell("");
  refresh();
}

// Questions are asked in a dialog; where that fails, on their own page.

async function ask(address) {
  try {
    const answer = await fetch(address, { headers: { "X-Tidemill-Dialog": "1" }, cache: "no-store", redirect: "manual" });
    if (!answer.ok) throw new Error(answer.status);
    const dialog = document.createElement("dialog");
    dialog.className = "dialog";
    dialog.setAttribute("aria-labelledby", "question-title");
    dialog.append(parsed(await answer.text()));
    document.body.append(dialog);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (event) => { if (event.target.closest("[data-close]")) { event.preventDefault(); dialog.close(); } });
    dialog.showModal();
  } catch {
    location.href = address;
  }
}

// How it looks.

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  // The server writes it into the page, so that none is light for a moment.
  document.cookie = "tidemill_theme=" + root.dataset.theme + "; path=/; max-age=31536000; samesite=strict";
}

// Keys.

let afterG = false;

function step(by) {
  const links = all("main tbody tr").map((row) => one("a, button, summary", row)).filter(Boolean);
  if (!links.length) return;
  const row = document.activeElement.closest("tbody tr");
  const at = links.findIndex((each) => row && row.contains(each));
  links[Math.max(0, Math.min(links.length - 1, at + by))].focus();
}

// A dialog that has just closed keeps the focus until the page is drawn again.
const left = (target) => Boolean(target.closest("dialog:not([open])"));

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (kept.get("keys") === "off" || (event.target.closest("input, select, textarea, dialog") && !left(event.target))) return;
  if (afterG) {
    afterG = false;
    const entry = one('.nav a[data-key="' + CSS.escape(event.key) + '"]');
    if (entry) { event.preventDefault(); entry.click(); }
    return;
  }
  const acts = {
    g: () => { afterG = true; },
    "/": () => { const field = one("main input[type=search]"); if (field) field.focus(); },
    j: () => step(1),
    k: () => step(-1),
    l: toggleLive,
    t: toggleTheme,
    "?": () => one("#keys").showModal(),
  };
  if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
}

function begin() {
  for (const button of all("[data-theme-toggle], [data-help]")) button.hidden = false;
  // Only where the page came safely: over TLS, or from this machine.
  if (navigator.clipboard) for (const button of all("[data-copy]")) button.hidden = false;
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); ask(link.href); }
    if (event.target.closest("[data-theme-toggle]")) toggleTheme();
    if (event.target.closest("[data-help]")) one("#keys").showModal();
    if (event.target.closest("[data-live-toggle]")) toggleLive();
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard.writeText(one("pre", copy.parentElement).textContent).then(() => { copy.firstChild.textContent = "Copied"; });
  });
  const single = one("[data-keys-on]");
  if (single) {
    single.checked = kept.get("keys") !== "off";
    single.addEventListener("change", () => kept.set("keys", single.checked ? "on" : "off"));
    document.addEventListener("keydown", onKey);
  }
  if (one("[data-live]")) {
    one("[data-live-toggle]").hidden = false;
    tell("");
    live.timer = setInterval(refresh, EVERY_MS);
    document.addEventListener("visibilitychange", refresh);
  }
  setInterval(tick, 1000);
}

begin();
