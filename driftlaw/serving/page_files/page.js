// Live page of `driftlaw serve`: reads /v1/status once per second and draws it. Data is only ever set as text.
"use strict";

const INTERVAL = 1000; // milliseconds between two requests
const PATIENCE = 4000; // after which the server counts as away
const SHOWN_CLASSES = 10;
const SHOWN_EVENTS = 30;
const LONGEST_GAP = 5; // seconds without a batch over which a line is drawn
const ADMIN_ACTIONS = ["pause", "resume", "reset", "rollback"];
const MODES = {
  adapting: ["Adapting", "The model is updated on the images it predicts."],
  paused: ["Paused", "Predictions continue without updates."],
  source: ["Source model", "The guard lets the source model predict, without updates."],
};

const get = (id) => document.getElementById(id);
let token = ""; // kept in memory only
let tenant = "";
let lastAnswer = null; // when the last status arrived
let status = null;
let needsToken = false; // no requests until the user has entered one
let busy = false; // an action is running

// --- small tools -----------------------------------------------------------------------------------------------

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function svg(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text; // an unchanged text is not announced again
}

// Keep as many children as there are items, so that bars move instead of being replaced.
function match(parent, count, make) {
  if (parent.firstElementChild?.classList.contains("empty")) parent.replaceChildren();
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make());
  return [...parent.children];
}

function showEmpty(parent, text, tag = "li") {
  const only = parent.firstElementChild;
  if (only?.classList.contains("empty")) setText(only, text);
  else parent.replaceChildren(element(tag, "empty", text));
}

const number = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const short = (value) => number(value, value === 0 || value >= 100 ? 0 : value < 10 ? 2 : 1);
const percent = (value) => `${number(100 * value, value < 0.0995 ? 1 : 0)} %`;
const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB");

function duration(seconds) {
  if (seconds < 100) return `${Math.floor(seconds)} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

const className = (index, name) => (name && name !== String(index) ? name : `class ${index}`); // unknown names are numbers
const words = (name) => name.replaceAll("_", " ");
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const lastNumber = (values) => values.findLast(isNumber);

// --- requests --------------------------------------------------------------------------------------------------

async function request(path, options = {}) {
  const query = tenant ? `?tenant=${encodeURIComponent(tenant)}` : "";
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path + query, { ...options, headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // an answer of a proxy, for example
  }
  return { code: answer.status, body, reason: String(body.error ?? `Status ${answer.status}.`) };
}

async function refresh() {
  const asked = tenant;
  let answer;
  try {
    answer = await request("v1/status");
  } catch {
    showProblem("The server does not answer.");
    return;
  }
  if (asked !== tenant) return; // the user has chosen another one in the meantime
  needsToken = answer.code === 401;
  if (answer.code === 200) {
    lastAnswer = Date.now();
    status = answer.body;
    show(status);
    showProblem("");
  } else if (needsToken) {
    showProblem(token ? "The server refused the token." : "The server needs a token.");
  } else {
    showProblem(`The server refused the request: ${answer.reason}`);
  }
}

async function loop() {
  try {
    if (!document.hidden && !needsToken) await refresh();
  } finally {
    setTimeout(loop, INTERVAL);
  }
}

// --- dialogs and actions ---------------------------------------------------------------------------------------

function openDialog(title, text, label, withToken) {
  const dialog = get("dialog");
  if (dialog.open) return Promise.resolve(false);
  setText(get("dialog-title"), title);
  setText(get("dialog-text"), text);
  setText(get("dialog-ok"), label);
  get("token-label").hidden = !withToken;
  get("token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
  (withToken ? get("token") : get("dialog-ok")).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}

async function askToken(text) {
  const entered = await openDialog("Token", `${text} It is kept until the page is closed.`, "Use this token", true);
  if (!entered || !get("token").value) return false;
  token = get("token").value;
  get("token").value = "";
  needsToken = false;
  return true;
}

async function act(action) {
  const questions = {
    reset: ["Reset the adapter?", "All updates are lost. The adapter is the source model again.", "Reset"],
    rollback: ["Roll back?", "The adapter returns to its last snapshot. Updates since then are lost.", "Roll back"],
  };
  if (busy || (questions[action] && !(await openDialog(...questions[action], false)))) return;
  busy = true;
  const before = token;
  try {
    let answer = await request(`v1/${action}`, { method: "POST" });
    while (answer.code === 401 && (await askToken("This needs the administrator's token."))) {
      answer = await request(`v1/${action}`, { method: "POST" });
    }
    if (answer.code === 401) token = before;
    const done = { pause: "Updates are paused.", resume: "Updates continue.", reset: "The adapter was reset.", rollback: "The adapter was rolled back." };
    setText(get("message"), answer.code === 200 ? done[action] : answer.reason);
    await refresh();
  } catch {
    setText(get("message"), "The server did not answer. It is not known whether the action took place.");
  }
  busy = false;
}

// --- what the status shows -------------------------------------------------------------------------------------

function showProblem(problem) {
  const since = lastAnswer ? ` The values below are from ${new Date(lastAnswer).toLocaleTimeString("en-GB")}.` : "";
  get("main").classList.toggle("stale", Boolean(problem));
  get("banner").hidden = !problem;
  get("enter-token").hidden = !needsToken;
  for (const id of ["pause", "reset"]) get(id).disabled = Boolean(problem);
  get("rollback").disabled = Boolean(problem) || !status.can_roll_back;
  get("rollback").title = get("rollback").disabled ? "There is no earlier snapshot." : "";
  if (!problem) return;
  setText(get("problem"), problem + since);
  setText(get("mode"), needsToken ? "Token needed" : "No connection");
  setText(get("mode-text"), "");
  get("mode").dataset.mode = "away";
}

function show(current) {
  const [name, text] = MODES[current.mode] ?? [current.mode, ""];
  setText(get("model"), `${current.model} · ${current.method}`);
  document.title = `${name} · ${current.model} · driftlaw server`;
  setText(get("mode"), name);
  setText(get("mode-text"), current.images ? text : "Waiting for the first image.");
  get("mode").dataset.mode = current.mode;
  setText(get("pause"), current.mode === "paused" ? "Resume updates" : "Pause updates");
  showTenants(current);
  showTiles(current);
  showWeights(current);
  showShares(current);
  const { series } = current;
  drawChart(get("entropy-chart"), series, [[2, series.entropy]], "nats");
  drawChart(get("rate-chart"), series, [[1, series.images, true]], "images/s");
  drawChart(get("latency-chart"), series, [[4, series.latency_p99], [1, series.latency_p50]], "ms");
  showEvents(current);
  showThumbnails(current);
}

function showTenants(current) {
  const names = current.tenant ? current.tenants : []; // without separate adapters there is one for all
  get("tenants").hidden = !names.length;
  const select = get("tenant");
  match(select, names.length, () => element("option")).forEach((option, index) => {
    option.value = names[index];
    setText(option, names[index]);
  });
  if (document.activeElement !== select) select.value = current.tenant;
  tenant = current.tenant;
}

function showTiles(current) {
  const recent = current.series.images.slice(-5);
  const latencies = current.series.latency_p50.slice(-10).filter(isNumber).sort((a, b) => a - b);
  setText(get("images"), number(current.images));
  setText(get("steps"), number(current.steps));
  setText(get("rate"), short(recent.reduce((sum, value) => sum + value, 0) / Math.max(1, recent.length)));
  setText(get("latency"), latencies.length ? short(latencies[Math.floor(latencies.length / 2)]) : "–");
  setText(get("queue"), number(current.queue));
  setText(get("queue-limit"), `of ${number(current.queue_limit)}`);
  setText(get("uptime"), duration(current.uptime));
}

function showWeights(current) {
  const entries = Object.entries(current.layer_weights).filter(([, value]) => isNumber(value));
  const area = get("weights");
  area.classList.toggle("none", !entries.length);
  area.classList.toggle("many", entries.length > 80);
  get("weight-details").hidden = !entries.length;
  if (!entries.length) {
    const waiting = current.method.startsWith("law");
    showEmpty(area, waiting ? "Layer weights appear after the first update." : `The method '${current.method}' has no layer weights. LAW has.`, "p");
    setText(get("weight-text"), "");
    return;
  }
  const make = () => {
    const bar = element("div", "bar");
    bar.append(element("span"));
    return bar;
  };
  match(area, entries.length, make).forEach((bar, index) => {
    const [layer, value] = entries[index];
    bar.firstElementChild.style.transform = `scaleY(${Math.min(1, Math.max(0, value))})`;
    bar.title = `${layer}: ${number(value, 3)}`;
  });
  const values = entries.map(([, value]) => value);
  const highest = entries.reduce((best, entry) => (entry[1] > best[1] ? entry : best));
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const text = `${entries.length} weights, mean ${number(mean, 2)}. Highest: ${highest[0]} (${number(highest[1], 2)}).`;
  setText(get("weight-text"), text);
  area.setAttribute("aria-label", `Layer weights: ${text}`);
  if (get("weight-details").open) {
    const makeRow = () => {
      const row = element("tr");
      const head = element("th");
      head.scope = "row";
      row.append(head, element("td"));
      return row;
    };
    match(get("weight-rows"), entries.length, makeRow).forEach((row, index) => {
      setText(row.children[0], entries[index][0]);
      setText(row.children[1], number(entries[index][1], 3));
    });
  }
}

function showShares(current) {
  const { images, class_shares: shares } = current.series;
  const totals = new Array(current.classes).fill(0);
  let count = 0;
  shares.forEach((row, second) => {
    if (!row?.length) return;
    count += images[second];
    row.forEach((share, index) => (totals[index] += share * images[second]));
  });
  const list = get("classes");
  if (current.class_colors.length) setText(get("shares-note"), "Share of the pixels of each class, last two minutes.");
  if (!count) {
    showEmpty(list, current.classes > 100 && current.images ? "There are too many classes to show." : "No images in the last two minutes.");
    return;
  }
  // In the order of the classes if all fit, else the most frequent ones.
  let indices = totals.map((_, index) => index);
  if (indices.length > SHOWN_CLASSES) indices = indices.sort((a, b) => totals[b] - totals[a]).slice(0, SHOWN_CLASSES);
  const longest = Math.max(...totals, (2 * count) / current.classes); // equal shares are half a bar
  const make = () => {
    const row = element("li");
    const track = element("span", "track");
    track.append(element("span"));
    row.append(element("span", "name"), track, element("span", "value"));
    return row;
  };
  match(list, indices.length, make).forEach((row, place) => {
    const share = totals[indices[place]] / count;
    setText(row.children[0], className(indices[place], current.class_names[indices[place]]));
    const bar = row.children[1].firstElementChild;
    bar.style.transform = `scaleX(${totals[indices[place]] / longest})`;
    bar.style.backgroundColor = current.class_colors[indices[place]] ?? "";
    setText(row.children[2], percent(share));
  });
}

// Lines over the seconds of the series. Longer times without a batch are gaps.
function drawChart(area, series, lines, unit) {
  const values = lines.flatMap(([, line]) => line.filter(isNumber));
  if (!values.length || !series.images.some((count) => count > 0)) {
    showEmpty(area, "No images in the last two minutes.", "p");
    return;
  }
  const highest = niceCeiling(Math.max(...values) || 1);
  const last = Math.max(1, series.time.length - 1);
  const picture = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" });
  const latest = lines.map(([, line]) => lastNumber(line)).filter(isNumber).map(short).join(" and ");
  picture.setAttribute("aria-label", `Last two minutes, highest ${short(Math.max(...values))} ${unit}, latest ${latest} ${unit}`);
  for (const height of [0, 50]) picture.append(svg("path", { class: "grid", d: `M0 ${height}H100` }));
  for (const [color, line, filled] of lines) {
    let path = "";
    let before = -Infinity;
    line.forEach((value, index) => {
      if (!isNumber(value)) return;
      const point = `${((100 * index) / last).toFixed(2)} ${(100 - (100 * value) / highest).toFixed(2)}`;
      path += index - before > LONGEST_GAP ? `M${point}h.01` : `L${point}`; // h.01: a single point is a dot
      before = index;
    });
    if (filled) picture.append(svg("path", { class: `area series-${color}`, d: `${path}V100H0Z` }));
    picture.append(svg("path", { class: `line series-${color}`, d: path }));
  }
  const axis = element("div", "axis");
  axis.append(element("span", "", "2 min ago"), element("span", "", "1 min ago"), element("span", "", "now"));
  const plot = element("div", "plot");
  plot.append(picture, element("span", "top", `${short(highest)} ${unit}`));
  area.replaceChildren(plot, axis);
}

function niceCeiling(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((limit) => limit >= value * 0.999);
}

function showEvents(current) {
  const { events, guard_counts: counts, guard_scale: scale } = current;
  const total = Object.entries(counts).map(([name, count]) => `${number(count)} ${words(name)}`).join(", ");
  const factor = isNumber(scale) && scale < 1 ? ` Updates are multiplied by ${Number(scale.toPrecision(3))}.` : "";
  setText(get("guard-note"), scale === null ? "The guard is off. Actions of the administrator are shown." : `Actions of the guard since the start: ${total || "none"}.${factor}`);
  const now = current.series.time.at(-1) ?? Date.now() / 1000;
  const start = current.series.time[0] ?? now - 120;
  const visible = events.filter((event) => event.time >= start);
  match(get("timeline"), visible.length, () => element("i")).forEach((mark, index) => {
    const event = visible[index];
    mark.className = ADMIN_ACTIONS.includes(event.action) ? "admin" : "";
    mark.style.left = `${Math.min(100, (100 * (event.time - start)) / Math.max(1, now - start))}%`;
    mark.title = `${clock(event.time)} ${words(event.action)}`;
  });
  const newest = events.slice(-SHOWN_EVENTS).reverse();
  if (!newest.length) {
    showEmpty(get("events"), "No events yet.");
    return;
  }
  const make = () => {
    const row = element("li");
    row.append(element("time"), element("span", "action"), element("span", "reason"));
    return row;
  };
  match(get("events"), newest.length, make).forEach((row, index) => {
    const event = newest[index];
    row.className = ADMIN_ACTIONS.includes(event.action) ? "admin" : "";
    setText(row.children[0], clock(event.time));
    row.children[0].dateTime = new Date(1000 * event.time).toISOString();
    setText(row.children[1], words(event.action));
    setText(row.children[2], `Step ${number(event.step)}. ${event.reason}`);
  });
}

// The last frame of a network that predicts a class per pixel, with a legend.
function showOverlay({ image, classes }) {
  const make = () => {
    const row = element("li");
    row.append(element("i"), element("span", "name"), element("span", "value"));
    return row;
  };
  if (get("overlay-image").src !== image) get("overlay-image").src = image;
  match(get("legend"), Math.min(classes.length, SHOWN_CLASSES), make).forEach((row, index) => {
    const { class: number, label, share } = classes[index];
    row.children[0].style.backgroundColor = status.class_colors[number];
    setText(row.children[1], className(number, label));
    setText(row.children[2], percent(share));
  });
}

function showThumbnails(current) {
  const list = get("thumbnails");
  const batch = current.last_batch.filter((entry) => entry.image.startsWith("data:image/png;base64,"));
  const isDense = current.class_colors.length > 0;
  setText(get("last-title"), isDense ? "Last frame" : "Last batch");
  get("overlay").hidden = !(isDense && batch.length);
  list.hidden = !get("overlay").hidden;
  if (list.hidden) {
    showOverlay(batch[0]);
    return;
  }
  if (!batch.length) {
    showEmpty(list, `No images yet. Send one: curl -F file=@photo.png ${location.origin}/v1/predict`);
    return;
  }
  const make = () => {
    const item = element("li");
    item.append(element("img"), element("span", "name"), element("span", "value"));
    return item;
  };
  match(list, batch.length, make).forEach((item, index) => {
    const { image, prediction, label, confidence } = batch[index];
    if (item.children[0].src !== image) item.children[0].src = image;
    item.children[0].alt = "";
    setText(item.children[1], prediction === null ? "no prediction" : className(prediction, label));
    setText(item.children[2], isNumber(confidence) ? percent(confidence) : "");
  });
}

// --- start -----------------------------------------------------------------------------------------------------

get("pause").addEventListener("click", () => act(status?.mode === "paused" ? "resume" : "pause"));
get("rollback").addEventListener("click", () => act("rollback"));
get("reset").addEventListener("click", () => act("reset"));
get("dialog-cancel").addEventListener("click", () => get("dialog").close(""));
get("tenant").addEventListener("change", (event) => {
  tenant = event.target.value;
  refresh();
});
document.addEventListener("visibilitychange", () => document.hidden || needsToken || refresh());
get("weight-details").addEventListener("toggle", () => status && showWeights(status));
get("enter-token").addEventListener("click", async () => {
  if (await askToken("The server needs a token.")) refresh();
});
loop();
