"use strict";
// The list and the comparison, all in the browser. Data comes by <script src>, because a page
// opened from a file may not fetch. Text goes into the page as text nodes, never as HTML.

const ai500 = (() => {
  const PAGE_ROWS = 50;
  const LINK_AFTER_MILLISECONDS = 200;
  const FILTERS = ["workload", "problem_class", "level", "edition", "organization", "accelerator"];
  const SEARCHED = ["system", "organization", "name", "edition", "level", "workload",
    "problem_class", "accelerator", "precision", "framework", "id"];
  const NOT_MEASURED = "not measured";
  const byId = id => document.getElementById(id);

  function element(name, properties = {}, ...children) {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  }

  // Numbers as ai500.core.units formats them.
  const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  // Ties round to even, as in Python; toFixed rounds them up.
  function fixed(value, decimals) {
    const text = value.toFixed(decimals);
    const rest = value.toFixed(60).split(".")[1]?.slice(decimals) ?? "";
    const tie = /^50*$/.test(rest) && Number(text.at(-1)) % 2 === 1;
    return tie ? (Number(text) - 10 ** -decimals).toFixed(decimals) : text;
  }
  function digits(value, count) {
    const decimals = count - 1 - Number(value.toExponential().split("e")[1]);
    const simple = decimals < 0 || decimals > 40;
    return String(Number(simple ? value.toPrecision(count) : fixed(value, decimals)));
  }
  function rate(value, unit) {
    const rounded = Math.abs(Number(value.toPrecision(4)));
    const [factor, prefix] = PREFIXES.find(([least]) => rounded >= least) ?? [1, ""];
    return `${digits(value / factor, 4)} ${prefix}${unit}`;
  }
  function duration(seconds) {
    if (seconds < 0.9995) return seconds ? `${digits(seconds * 1000, 3)} ms` : "0 s";
    if (seconds < 99.95) return `${fixed(seconds, 1)} s`;
    const whole = seconds % 2 === 0.5 ? seconds - 0.5 : Math.round(seconds); // halves: to even
    let minutes = Math.floor(whole / 60);
    const rest = whole % 60;
    if (minutes < 100) return `${minutes} min ${String(rest).padStart(2, "0")} s`;
    const hours = Math.floor(minutes / 60);
    minutes %= 60;
    return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  }
  const KINDS = {
    flops: value => rate(value, "FLOPS"),
    vflops: value => rate(value, "VFLOPS"),
    per_watt: value => rate(value, "").trim(), // the column's name is the unit
    seconds: duration,
    count: value => value.toLocaleString("en"),
    text: value => value,
    short: value => value,
    yes: value => (value ? "yes" : "no"),
  };

  // --- the data ---------------------------------------------------------------------------
  let entries = [];
  let layerNames = [];
  const entryById = new Map();
  const layers = new Map();
  const rooflines = new Map();
  const waiting = new Map();
  const loading = new Map();

  function list({ columns, rows, layer_names }) {
    layerNames = layer_names;
    entries = rows.map(row => {
      const entry = {};
      columns.forEach((name, index) => { entry[name] = row[index]; });
      entry.list = [entry.workload, entry.problem_class, entry.level].join(" · ");
      entry.text = SEARCHED.map(name => entry[name]).join("\n").toLowerCase();
      entryById.set(entry.id, entry);
      return entry;
    });
    if (byId("list")) startList();
    if (byId("result")) startComparison();
  }

  function entry(data) {
    layers.set(data.id, data.layers);
    rooflines.set(data.id, data.rooflines);
    waiting.get(data.id)?.();
  }

  const listName = entry => entry.list.replaceAll("_", " ");
  const words = text => text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (entry, terms) => terms.every(term => entry.text.includes(term));

  function searchBySlash() {
    document.addEventListener("keydown", event => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)
        && document.activeElement.type !== "checkbox";
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      if (byId("filters")) byId("filters").open = true;
      byId("search").focus();
      byId("search").select();
    });
  }

  // --- the list ---------------------------------------------------------------------------
  let state;
  let headers;
  let shown = [];
  let drawn = new Map();
  let writing;
  const orders = new Map();

  // The longest list comes first: it is the initial view.
  function initial() {
    const [first = { workload: "*", problem_class: "*", level: "*" }] = entries; // none yet
    return { q: "", sort: "rank", dir: "up", page: 1, every: false, pick: [],
      workload: first.workload, problem_class: first.problem_class, level: first.level,
      edition: "*", organization: "*", accelerator: "*" };
  }

  function readHash() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const next = initial();
    for (const name of ["q", "sort", ...FILTERS])
      if (parameters.has(name)) next[name] = parameters.get(name);
    if (!headers.some(header => header.dataset.key === next.sort)) next.sort = "rank";
    next.dir = parameters.get("dir") === "down" ? "down" : "up";
    next.page = Math.max(1, Number.parseInt(parameters.get("page"), 10) || 1);
    next.every = parameters.get("every") === "1";
    next.pick = (parameters.get("pick") ?? "").split(",").filter(id => entryById.has(id)).slice(0, 2);
    return next;
  }

  // The link contains only what differs from the initial view.
  function writeHash() {
    const defaults = initial();
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) {
      const text = name === "pick" ? value.join(",") : name === "every" ? (value ? "1" : "") : value;
      const usual = name === "pick" || name === "every" ? "" : defaults[name];
      if (String(text) !== String(usual)) parameters.set(name, text);
    }
    history.replaceState(null, "", `#${parameters}`);
  }

  const EDITION_RANKS = { rank: "edition_rank", energy_rank: "edition_energy_rank" };
  const rankOf = (entry, key) => entry[state.edition === "*" ? key : EDITION_RANKS[key]];
  // Sorted by places per watt, a system is shown by its best result per watt.
  const place = entry => rankOf(entry, state.sort === "energy_rank" ? "energy_rank" : "rank");

  function value(entry, key) {
    if (key in EDITION_RANKS) return rankOf(entry, key);
    const raw = entry[key];
    return typeof raw === "string" ? raw.toLowerCase() : raw;
  }

  // All entries in the chosen order, cached: a key press then only filters.
  function ordered() {
    const key = `${state.sort} ${state.dir} ${state.sort in EDITION_RANKS && state.edition !== "*"}`;
    if (!orders.has(key)) {
      const sign = state.dir === "up" ? 1 : -1;
      const values = new Map(entries.map(entry => [entry, value(entry, state.sort)]));
      // Missing values sort last in either direction; equal values keep the order of the list.
      orders.set(key, [...entries].sort((a, b) => {
        const [x, y] = [values.get(a), values.get(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        return x < y ? -sign : x > y ? sign : 0;
      }));
    }
    return orders.get(key);
  }

  function filtered() {
    const terms = words(state.q);
    const chosen = FILTERS.filter(name => state[name] !== "*");
    return ordered().filter(entry => chosen.every(name => entry[name] === state[name])
      && (state.every || place(entry) !== null) && matches(entry, terms));
  }

  function update(change) {
    Object.assign(state, "page" in change ? {} : { page: 1 }, change);
    show();
    // Browsers limit how often an address may change; typing changes it only at the end.
    clearTimeout(writing);
    writing = setTimeout(writeHash, LINK_AFTER_MILLISECONDS);
  }

  function show() {
    shown = filtered();
    const pages = Math.max(1, Math.ceil(shown.length / PAGE_ROWS));
    state.page = Math.min(state.page, pages);
    const first = (state.page - 1) * PAGE_ROWS;
    const lists = new Set(shown.map(entry => entry.list));
    for (const header of headers) {
      header.removeAttribute("aria-sort");
      if (header.dataset.key === state.sort)
        header.setAttribute("aria-sort", state.dir === "up" ? "ascending" : "descending");
    }
    draw(shown.slice(first, first + PAGE_ROWS), lists.size > 1);
    const count = shown.length.toLocaleString("en");
    byId("count").textContent = `${count} ${shown.length === 1 ? "entry" : "entries"}`
      + (lists.size > 1 ? ` of ${lists.size} lists: ranks compare only within one list` : "")
      + (lists.size === 1 ? `: ${listName(shown[0])}` : "");
    byId("empty").hidden = shown.length > 0;
    byId("page").textContent = `page ${state.page} of ${pages}`;
    byId("previous").disabled = state.page <= 1;
    byId("next").disabled = state.page >= pages;
    byId("previous").parentElement.hidden = pages <= 1;
    showTop(lists);
    showPicked();
    showControls();
  }

  // The chart of the best systems is that of the one list that is shown.
  function showTop(lists) {
    for (const figure of document.querySelectorAll("#top [data-list]"))
      figure.hidden = !(lists.size === 1 && lists.has(figure.dataset.list));
  }

  // Rows are reused: most key presses change few of them, or none.
  function draw(page, naming) {
    const kind = `${naming} ${state.edition !== "*"}`;
    const rows = new Map(page.map(entry => {
      const key = `${entry.id} ${kind}`;
      return [key, drawn.get(key) ?? tableRow(entry, naming)];
    }));
    if ([...rows.keys()].join() !== [...drawn.keys()].join() || !rows.size)
      byId("list").tBodies[0].replaceChildren(...rows.values());
    drawn = rows;
    for (const [key, row] of rows)
      row.querySelector("input").checked = state.pick.includes(key.split(" ")[0]);
  }

  function tableRow(entry, naming) {
    const row = element("tr");
    row.setAttribute("role", "row");
    for (const header of headers) {
      const cell = element("td", { className: header.className });
      cell.dataset.label = header.textContent.trim();
      if (header.dataset.kind === "system" || header.dataset.kind === "text")
        cell.classList.add("wide");
      cell.append(...content(entry, header.dataset));
      row.append(cell);
    }
    if (naming) row.querySelector(".wide small").after(element("small", {}, listName(entry)));
    const box = element("input", { type: "checkbox" });
    box.setAttribute("aria-label", `compare ${entry.system}, ${entry.edition}`);
    box.addEventListener("change", () => pick(entry.id, box.checked));
    const cell = element("td", { className: "pick" }, box);
    cell.dataset.label = "Compare";
    row.append(cell);
    for (const tableCell of row.cells) tableCell.setAttribute("role", "cell");
    return row;
  }

  function content(entry, { key, kind }) {
    if (key in EDITION_RANKS) return rankCell(entry, key);
    if (kind === "system")
      return [element("a", { href: `entries/${entry.id}.html` }, entry.system || "(no name)"),
        element("small", {}, entry.organization)];
    if (kind === "quality") return [quality(entry)];
    if (kind === "proof")
      return [entry.proven, element("small", {}, entry.signed ? "signed" : "not signed")];
    if (key === "regulated_score" && entry[key] === null) return ["—"]; // an ensemble has none
    if (entry[key] === null) return [element("span", { className: "none" }, NOT_MEASURED)];
    if (kind === "text") return [element("span", {}, entry[key])];
    const figure = KINDS[kind](entry[key]);
    return kind === "per_watt" ? [figure, element("small", {}, entry.power_coverage)] : [figure];
  }

  // Ranges of trials overlap: the trials leave any rank from first to last open.
  function rankCell(entry, key) {
    const rank = rankOf(entry, key)?.toLocaleString("en");
    if (!rank) return ["—"];
    const edition = state.edition === "*" ? "" : "edition_";
    const [first, last] = [entry[`${edition}first_overlap`], entry[`${edition}last_overlap`]];
    if (key !== "rank" || first === null) return [rank];
    const text = `${first.toLocaleString("en")}–${last.toLocaleString("en")}`;
    const open = element("small", { className: "open", title: "Ranks that the trials leave open" }, text);
    return [rank, open];
  }

  function quality(entry) {
    const met = entry.quality_ratio >= 1;
    const title = `${entry.quality_name}; target ${met ? "met" : "missed"}`;
    return element("span", { className: met ? "met" : "missed", title },
      `${fixed(entry.quality, 4)} / ${entry.target_quality} ${met ? "✓" : "✗"}`);
  }

  function pick(id, checked) {
    const pick = state.pick.filter(other => other !== id);
    update({ pick: checked ? [...pick, id].slice(-2) : pick, page: state.page });
  }

  function showPicked() {
    byId("picked").hidden = state.pick.length === 0;
    const names = state.pick.map(id => entryById.get(id))
      .map(entry => `${entry.system} (${entry.edition})`);
    byId("picked-names").textContent = names.join(" and ")
      + (names.length === 1 ? ": choose a second one" : "");
    const [a, b = ""] = state.pick;
    byId("compare").href = `compare.html#${new URLSearchParams(b ? { a, b } : { a: a ?? "" })}`;
  }

  function showControls() {
    for (const select of document.querySelectorAll("[data-filter]"))
      select.value = state[select.dataset.filter];
    if (document.activeElement !== byId("search")) byId("search").value = state.q;
    byId("every").checked = state.every;
  }

  function fillFilters() {
    for (const select of document.querySelectorAll("[data-filter]")) {
      const name = select.dataset.filter;
      const values = [...new Set(entries.map(entry => entry[name]))].sort();
      if (name === "edition") values.reverse();
      for (const value of values)
        select.append(element("option", { value }, value.replaceAll("_", " ") || "(none)"));
      select.addEventListener("change", () => update({ [name]: select.value }));
    }
  }

  const EVERYTHING = { q: "", every: true, ...Object.fromEntries(FILTERS.map(name => [name, "*"])) };

  function startList() {
    headers = [...document.querySelectorAll("#list th[data-key]")];
    state = readHash();
    // Entries come first on a phone; there the summary opens the filters.
    if (matchMedia("(max-width: 34rem)").matches) byId("filters").open = false;
    fillFilters();
    byId("controls").addEventListener("submit", event => event.preventDefault());
    byId("search").addEventListener("input", event => update({ q: event.target.value }));
    byId("every").addEventListener("change", event => update({ every: event.target.checked }));
    byId("reset").addEventListener("click", () => { byId("search").value = ""; update(initial()); });
    byId("clear").addEventListener("click", () => { byId("search").value = ""; update(EVERYTHING); });
    byId("unpick").addEventListener("click", () => update({ pick: [], page: state.page }));
    byId("previous").addEventListener("click", () => turn(-1));
    byId("next").addEventListener("click", () => turn(1));
    byId("csv").addEventListener("click", () => download("csv", "text/csv", asCsv()));
    byId("json").addEventListener("click", () => download("json", "application/json", asJson()));
    for (const header of headers)
      header.querySelector("button").addEventListener("click", () => sortBy(header));
    window.addEventListener("hashchange", () => { state = readHash(); show(); });
    window.addEventListener("pagehide", writeHash);
    searchBySlash();
    show();
  }

  function turn(pages) {
    update({ page: state.page + pages });
    byId("list").scrollIntoView();
  }

  function sortBy(header) {
    const { key, first } = header.dataset;
    const other = { up: "down", down: "up" };
    update({ sort: key, dir: state.sort === key ? other[state.dir] : first });
  }

  // --- downloads of the shown list --------------------------------------------------------
  const plainRow = ({ text, list: _, ...columns }) => columns;
  const asJson = () => JSON.stringify(shown.map(plainRow), null, 2) + "\n";

  function asCsv() {
    const names = Object.keys(plainRow(entries[0] ?? {}));
    const lines = [names, ...shown.map(entry => names.map(name => entry[name]))];
    return lines.map(line => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
  }

  // Untrusted text that begins like a formula must stay text in a spreadsheet.
  function csvCell(value) {
    if (value === null) return "";
    if (typeof value !== "string") return String(value);
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function download(extension, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    element("a", { href: url, download: `ai500-list.${extension}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // --- the comparison ---------------------------------------------------------------------
  const MEASURED = [
    ["VFLOPS", "vflops", "vflops", 1], ["FLOPS", "flops", "flops", 1],
    ["regulated score", "regulated_score", "flops", 1],
    ["time to quality", "time_to_quality_seconds", "seconds", -1],
    ["time to target", "time_to_target_seconds", "seconds", -1],
    ["VFLOPS per watt", "vflops_per_watt", "per_watt", 1],
    ["FLOPS per watt", "flops_per_watt", "per_watt", 1],
    ["quality", "quality_ratio", "quality", 1],
    ["M", "ensemble_size", "count", 0], ["P_degree", "parallel_degree", "count", 0],
    ["Sys_scale", "system_scale", "count", 0], ["nodes", "nodes", "count", 0],
    ["trials", "trials", "count", 0], ["list", "list", "text", 0], ["edition", "edition", "text", 0],
    ["proven", "proven", "text", 0], ["signed", "signed", "yes", 0],
  ];
  const sides = { a: null, b: null };

  function startComparison() {
    for (const side of ["a", "b"]) {
      const input = document.querySelector(`[data-side="${side}"] input`);
      input.addEventListener("input", () => offer(side, input.value));
      input.addEventListener("focus", () => offer(side, input.value));
    }
    byId("swap").addEventListener("click", () => choose({ a: sides.b, b: sides.a }));
    byId("differences").addEventListener("change", compare);
    window.addEventListener("hashchange", readSides);
    searchBySlash();
    readSides();
  }

  function readSides() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    for (const side of ["a", "b"]) sides[side] = entryById.get(parameters.get(side)) ?? null;
    compare();
  }

  function offer(side, text) {
    const terms = words(text);
    const offered = [];
    for (const entry of entries) {
      if (matches(entry, terms)) offered.push(entry);
      if (offered.length === 6) break;
    }
    const buttons = offered.map(entry => {
      const button = element("button", { type: "button" }, describe(entry));
      button.addEventListener("click", () => choose({ ...sides, [side]: entry }));
      return element("li", {}, button);
    });
    const none = element("li", {}, "No entry matches.");
    document.querySelector(`[data-side="${side}"] .found`)
      .replaceChildren(...(buttons.length ? buttons : [none]));
  }

  const describe = entry => `${[entry.system, entry.organization, entry.edition].filter(Boolean).join(", ")}: `
    + `${KINDS.vflops(entry.vflops)} (${listName(entry)})`;

  function choose(next) {
    Object.assign(sides, next);
    const chosen = Object.entries(sides).filter(([, entry]) => entry);
    const parameters = new URLSearchParams(chosen.map(([side, entry]) => [side, entry.id]));
    history.replaceState(null, "", `#${parameters}`);
    for (const matched of document.querySelectorAll(".found")) matched.replaceChildren();
    compare();
  }

  function load(id) {
    if (!loading.has(id)) {
      // A failed load may be tried again.
      const failed = reject => error => { loading.delete(id); reject(error); };
      loading.set(id, new Promise((resolve, reject) => {
        waiting.set(id, resolve);
        const src = `data/entries/${id}.js`;
        document.head.append(element("script", { src, onerror: failed(reject) }));
      }));
    }
    return loading.get(id);
  }

  async function compare() {
    for (const side of ["a", "b"]) {
      const target = document.querySelector(`[data-side="${side}"] .chosen`);
      const entry = sides[side];
      target.replaceChildren(entry ? element("a", { href: `entries/${entry.id}.html` }, describe(entry))
        : "None chosen: search above.");
    }
    const { a, b } = sides;
    byId("result").replaceChildren();
    if (!a || !b) return;
    try {
      await Promise.all([load(a.id), load(b.id)]);
    } catch {
      byId("result").replaceChildren("The data of an entry can't be loaded.");
      return;
    }
    if (sides.a === a && sides.b === b) byId("result").replaceChildren(...comparison(a, b));
  }

  function comparison(a, b) {
    const sections = [...section("Results", MEASURED.map(row => measured(a, b, row)), a, b)];
    sections.push(...drawings(a, b));
    if (a.list !== b.list) {
      const note = "These two are of different lists: their scores do not compare.";
      sections.unshift(element("p", { className: "verdict invalid" }, note));
    }
    layerNames.forEach((name, index) => {
      const [x, y] = [a, b].map(entry => layers.get(entry.id)[index + 1]);
      const names = [...new Set([...Object.keys(x), ...Object.keys(y)])];
      const rows = names.map(key => comparedRow(key, [x[key] ?? "—", y[key] ?? "—"], -1));
      sections.push(...section(`Layer ${index + 1}: ${name}`, rows, a, b));
    });
    return sections;
  }

  // The site's own charts: SVG of `report/charts`, in which every text is escaped.
  function drawings(a, b) {
    const figures = [a, b].flatMap(entry => (rooflines.get(entry.id) ?? []).map(drawing => {
      const svg = new DOMParser().parseFromString(drawing.svg, "image/svg+xml").documentElement;
      const name = `${entry.system}, ${entry.edition}: ${drawing.title}`;
      return element("figure", {}, element("h3", {}, name), document.importNode(svg, true),
        element("figcaption", {}, drawing.caption));
    }));
    const without = [a, b].filter(entry => !rooflines.get(entry.id)?.length);
    const names = [...new Set(without.map(entry => `${entry.system}, ${entry.edition}`))];
    const note = names.length ? [element("p", {}, `No roofline submitted: ${names.join("; ")}.`)] : [];
    return [element("h2", {}, "Rooflines"), ...note,
      ...(figures.length ? [element("div", { className: "drawings" }, ...figures)] : [])];
  }

  function measured(a, b, [name, key, kind, sign]) {
    const none = { time_to_target_seconds: "not reached", regulated_score: "no search" }[key]
      ?? NOT_MEASURED;
    const texts = [a, b].map(entry => (entry[key] === null ? none
      : kind === "quality" ? `${fixed(entry.quality, 4)}, target ${entry.target_quality}`
        : KINDS[kind](entry[key]) + (kind === "per_watt" ? ` of ${entry.power_coverage}` : "")));
    const comparable = sign && a.list === b.list && a[key] !== null && b[key] !== null
      && (kind !== "per_watt" || a.power_coverage === b.power_coverage);
    const better = !comparable || a[key] === b[key] ? -1 : Number(sign * (b[key] - a[key]) > 0);
    return comparedRow(name, texts, better);
  }

  function comparedRow(name, texts, better) {
    const head = element("th", { scope: "row" }, name);
    const cells = texts.map((text, index) =>
      element("td", { className: index === better ? "better" : "" }, text));
    const differs = texts[0] !== texts[1];
    return element("tr", { className: differs ? "differs" : "" }, head, ...cells);
  }

  function section(title, rows, a, b) {
    const different = rows.filter(row => row.className === "differs");
    const shownRows = byId("differences").checked ? different : rows;
    const count = different.length ? `${different.length} different` : "the same";
    const heading = element("h2", {}, `${title} `,
      element("span", { className: "layer-count" }, `· ${count}`));
    if (!shownRows.length) return [heading];
    const head = element("tr", {}, element("th", { scope: "col" }, ""),
      ...[a, b].map(entry => element("th", { scope: "col" }, `${entry.system}, ${entry.edition}`)));
    return [heading, element("table", { className: "comparison" },
      element("thead", {}, head), element("tbody", {}, ...shownRows))];
  }

  return { list, entry };
})();
