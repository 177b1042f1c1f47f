// Tangled from book/workshop/weave-script.md
"use strict";
(() => {
  const root = document.documentElement;

  const element = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  const typing = (event) =>
    event.target.closest("input, textarea, select, [contenteditable]") || event.ctrlKey || event.metaKey || event.altKey;

  const KEY = "tinyllm.hide-implementation";
  const switches = document.querySelectorAll(".hide-implementation");

  const hide = (hidden) => {
    if (hidden) root.dataset.hideImplementation = "";
    else delete root.dataset.hideImplementation;
    for (const one of switches) one.setAttribute("aria-pressed", String(hidden));
    try {
      localStorage.setItem(KEY, hidden ? "1" : "0");
    } catch {} // a browser that keeps nothing forgets this too
  };

  if (switches.length) {
    const toggle = () => hide(!("hideImplementation" in root.dataset));
    for (const one of switches) {
      one.setAttribute("aria-pressed", String("hideImplementation" in root.dataset));
      one.addEventListener("click", toggle);
    }
    document.addEventListener("keydown", (event) => {
      if (event.key === "h" && !typing(event)) toggle();
    });
  }

  for (const chunk of document.querySelectorAll(".chunk.implementation")) {
    const button = element("button", { type: "button", class: "show-block", "aria-expanded": "false" }, "Show");
    button.setAttribute("aria-label", `Show ${chunk.querySelector(".chunk-name")?.textContent ?? "this block"}`);
    button.addEventListener("click", () => {
      const shown = chunk.classList.toggle("shown");
      button.setAttribute("aria-expanded", String(shown));
      button.textContent = shown ? "Hide" : "Show";
    });
    chunk.querySelector(".chunk-caption").prepend(button);
  }

  const LINKS = "a.chunk-reference, a:has(> code), a.term, .chunk-foot a";
  const preview = element("div", { id: "preview", role: "tooltip", hidden: "" });
  (document.querySelector("main") ?? document.body).append(preview);
  let described = null; // the link whose preview is open
  let timer = 0;

  const contents = (link) => {
    if (link.dataset.tip) return element("p", {}, link.dataset.tip);
    const id = decodeURIComponent(link.hash.slice(1));
    const away = link.pathname !== location.pathname;
    const chunk = away
      ? document.querySelector(`template[data-preview="${CSS.escape(id)}"]`)?.content.firstElementChild
      : document.getElementById(id);
    if (!chunk?.classList.contains("chunk")) return null;
    const copy = chunk.cloneNode(true);
    copy.classList.remove("shown");
    for (const one of [copy, ...copy.querySelectorAll("[id], [tabindex]")]) {
      one.removeAttribute("id");
      one.removeAttribute("tabindex");
    }
    for (const one of copy.querySelectorAll("button, nav, .chunk-foot")) one.remove();
    for (const one of copy.querySelectorAll("a")) one.tabIndex = -1; // it stands at the page's end, a step away from the last link
    return copy;
  };

  const close = () => {
    clearTimeout(timer);
    described?.removeAttribute("aria-describedby");
    described = null;
    preview.hidden = true;
  };

  const open = (link) => {
    if (link === described) return;
    close();
    const shown = contents(link);
    if (!shown) return;
    preview.replaceChildren(shown);
    preview.hidden = false;
    described = link;
    link.setAttribute("aria-describedby", "preview");
    const at = link.getClientRects()[0];
    const { offsetWidth: width, offsetHeight: height } = preview;
    const left = Math.max(8, Math.min(at.left, root.clientWidth - width - 8));
    const below = at.bottom + height + 8 < innerHeight || at.top < height + 60;
    preview.style.left = `${left + scrollX}px`;
    preview.style.top = `${(below ? at.bottom + 6 : at.top - height - 6) + scrollY}px`;
  };

  const later = (wait, what) => {
    clearTimeout(timer);
    timer = setTimeout(what, wait);
  };

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const link = event.target.closest(LINKS);
    if (link && !preview.contains(link)) later(250, () => open(link));
    else if (preview.contains(event.target)) clearTimeout(timer);
    else if (described && described !== document.activeElement) later(250, close);
    else if (!described) clearTimeout(timer);
  });
  document.addEventListener("focusin", (event) => {
    const link = event.target.closest(LINKS);
    if (link?.matches(":focus-visible")) open(link);
    else if (!preview.contains(event.target)) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  document.addEventListener("click", (event) => {
    if (!preview.contains(event.target)) close();
  });

  let index = null; // once it is loaded: [{ kind, title, href, where, text, low: [title, text] }]

  const even = (text) => text.toLowerCase().replaceAll("_", "-"); // split_heads is found as split-heads

  const load = () =>
    (load.promise ??= new Promise((done, failed) => {
      const script = element("script", { src: `${root.dataset.base}/assets/search-index.js` });
      script.onerror = () => failed(new Error("the index of the search cannot be loaded"));
      script.onload = () => {
        index = window.bookIndex.map(([kind, title, href, where, text]) => ({
          kind, title, href, where, text, low: [even(title), even(text)],
        }));
        done();
      };
      document.head.append(script);
    }));

  const KINDS = { page: 6, section: 4, class: 5, function: 5, method: 5, constant: 3, block: 4, test: 2 };

  const score = ({ kind, where, low: [title, text] }, words, whole) => {
    let sum = (KINDS[kind] ?? 0) + (where.startsWith("tinyllm/") ? 3 : 0);
    if (title === whole || title.endsWith(`.${whole}`)) sum += 100;
    for (const word of words) {
      const at = title.indexOf(word);
      if (at >= 0) sum += at === 0 ? 30 : /[\s.-]/.test(title[at - 1]) ? 24 : 12;
      else {
        const inside = text.indexOf(word);
        if (inside < 0) return 0;
        sum += inside === 0 || /\W/.test(text[inside - 1]) ? 4 : 1;
      }
    }
    return sum;
  };

  const find = (query) => {
    const whole = even(query.trim());
    const words = whole.split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const scored = index.map((entry) => [score(entry, words, whole), entry]).filter(([sum]) => sum > 0);
    return scored.sort((a, b) => b[0] - a[0]).slice(0, 30).map(([, entry]) => ({ entry, words }));
  };
  const input = element("input", {
    id: "search-query", type: "search", placeholder: "Search", autocomplete: "off", spellcheck: "false",
    "aria-label": "Search the book", "aria-controls": "search-results",
  });
  const results = element("ul", { id: "search-results" });
  const status = element("p", { id: "search-status", role: "status" });
  const closer = element("button", { type: "button", class: "search-close" }, "Close");
  const dialog = element("dialog", { id: "search", "aria-label": "Search" },
    element("div", { class: "search-bar" }, input, closer), status, results);
  document.body.append(dialog);

  const marked = (text, words) => {
    const pattern = new RegExp(words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll("-", "[-_]")).join("|"), "gi");
    const parts = [];
    let at = 0;
    for (const found of text.matchAll(pattern)) {
      parts.push(text.slice(at, found.index), element("mark", {}, found[0]));
      at = found.index + found[0].length;
    }
    return [...parts, text.slice(at)];
  };

  const snippet = ({ text, low }, words) => {
    const at = Math.min(...words.map((word) => low[1].indexOf(word)).filter((where) => where >= 0));
    const start = Number.isFinite(at) ? Math.max(0, text.lastIndexOf(" ", Math.max(0, at - 50)) + 1) : 0;
    const end = text.length > start + 150 ? text.lastIndexOf(" ", start + 150) : text.length;
    return (start ? "… " : "") + text.slice(start, end > start ? end : start + 150) + (end < text.length ? " …" : "");
  };

  const show = () => {
    const found = index ? find(input.value) : [];
    results.replaceChildren(
      ...found.map(({ entry, words }) => {
        const link = element("a", { href: `${root.dataset.base}/${entry.href}` },
          element("span", { class: "search-title" }, ...marked(entry.title, words)),
          element("span", { class: "search-kind" }, entry.where ? `${entry.kind} · ${entry.where}` : entry.kind));
        if (entry.text) link.append(element("span", { class: "search-text" }, ...marked(snippet(entry, words), words)));
        return element("li", {}, link);
      }),
    );
    const count = found.length === 30 ? "The best 30 results" : found.length > 1 ? `${found.length} results` : found.length ? "1 result" : "Nothing found";
    status.textContent = !input.value.trim() ? "" : !index ? "Loading …" : count;
  };

  const search = () => {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    load().then(show, (error) => (status.textContent = String(error.message)));
  };

  input.addEventListener("input", show);
  dialog.addEventListener("keydown", (event) => {
    const stops = [input, ...results.querySelectorAll("a")];
    const at = stops.indexOf(document.activeElement);
    if (event.key === "Enter" && at === 0) stops[1]?.click();
    else if (event.key === "ArrowDown" && at >= 0) stops[(at + 1) % stops.length].focus();
    else if (event.key === "ArrowUp" && at >= 0) stops.at(at - 1).focus();
    else return;
    event.preventDefault();
  });
  results.addEventListener("click", (event) => {
    if (event.target.closest("a")) dialog.close();
  });
  closer.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
  for (const button of document.querySelectorAll(".search-open")) button.addEventListener("click", search);
  document.addEventListener("keydown", (event) => {
    const called = ["/", "s", "f"].includes(event.key) && !typing(event) && !event.shiftKey;
    if (!called && !(event.key === "k" && (event.ctrlKey || event.metaKey))) return;
    event.preventDefault();
    search();
  });

  const said = element("p", { role: "status", class: "said" });
  document.body.append(said);

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // over plain http a page may not write to the clipboard; a selection may be copied
      const area = element("textarea", { class: "said" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };

  for (const pre of document.querySelectorAll(".highlight > pre")) {
    const name = pre.closest(".chunk")?.querySelector(".chunk-name")?.textContent ?? "code";
    const button = element("button", { type: "button", class: "copy", "aria-label": `Copy ${name}` }, "Copy");
    button.addEventListener("click", async () => {
      const code = pre.querySelector("code").cloneNode(true);
      for (const one of code.querySelectorAll(".run-from")) one.remove();
      await copied(code.textContent);
      button.textContent = "Copied";
      said.textContent = `${name} is copied`;
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    pre.after(button);
  }

  const number = (text) => {
    const parts = text.replaceAll("\u2212", "-").replaceAll(",", ".").split("/");
    return parts.length > 2 || parts.some((part) => !part.trim()) ? NaN : Number(parts[0]) / Number(parts[1] ?? 1);
  };

  for (const form of document.querySelectorAll(".ask")) {
    const [input, verdict] = form.querySelectorAll("input, output");
    const { answer, decimals } = form.dataset;
    const judged = (text) => {
      if (decimals === undefined) return text.toLowerCase() === answer.toLowerCase() ? "right" : "wrong";
      const given = number(text);
      if (Number.isNaN(given)) return "odd";
      return Math.abs(given - Number(answer)) <= 0.5 * 10 ** -decimals * (1 + 1e-9) ? "right" : "wrong";
    };
    const SAID = { right: "Right.", wrong: "Not yet. Try again, or look at the answer.", odd: "That isn't a number." };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!input.value.trim()) return input.focus();
      form.dataset.verdict = judged(input.value.trim());
      verdict.textContent = SAID[form.dataset.verdict];
    });
    input.addEventListener("input", () => {
      delete form.dataset.verdict;
      verdict.textContent = "";
    });
  }

  let opened = []; // for the printer
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("article details:not([open])")];
    for (const one of opened) one.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });

  const drawer = document.getElementById("__drawer");
  const label = document.querySelector('label[for="__drawer"].md-header__button');
  if (drawer && label) {
    const button = element("button", {
      type: "button", class: `${label.className} drawer-open`, "aria-label": "List of pages", "aria-expanded": "false",
    });
    button.append(...label.childNodes);
    label.replaceWith(button);
    button.addEventListener("click", () => drawer.click());
    drawer.addEventListener("change", () => button.setAttribute("aria-expanded", String(drawer.checked)));
  }

  for (const label of document.querySelectorAll("[data-md-component=palette] label")) {
    const input = document.getElementById(label.htmlFor); // Material's, which does the work
    const button = element("button", {
      type: "button", class: `${label.className} theme-switch`, title: label.title, "aria-label": label.title,
    });
    button.hidden = label.hidden;
    button.append(...label.childNodes);
    label.replaceWith(button);
    button.addEventListener("click", () => {
      input.click();
      input.nextElementSibling.hidden = false;
      input.nextElementSibling.focus();
    });
    input.hidden = true;
  }

  const boxes = document.querySelectorAll("pre, .equation, .table-frame, .figure-frame");
  const reach = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.setAttribute("tabindex", "0");
      else target.removeAttribute("tabindex");
    }
  });
  for (const box of boxes) reach.observe(box);
})();
