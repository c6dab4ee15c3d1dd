"use strict";
// Asks for /state.json each second, and draws it. Everything from outside becomes text, never HTML.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SPAN = 600;
const WORDS = { good: "Good", watch: "Watch", bad: "Trouble" };
let state = null;
let history = [];
let asking = null;

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "rect", "line", "g"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const tied = (text) => text.replace(/(\d) (?=\d|(ms|s|min|h|d|[KMGT]?i?B)\b)/g, "$1\u00a0"); // a line does not end in a figure
function say(node, text) {
  const told = tied(text);
  if (node.textContent !== told) node.textContent = told;
}
function dress(node, name) { if (node.getAttribute("class") !== name) node.setAttribute("class", name); }
function redraw(node, told, build) { // only if it is told otherwise: a selection in it survives
  const text = JSON.stringify(told);
  if (node.told === text) return;
  node.told = text;
  node.replaceChildren(...build());
}

const short = (n) => {
  if (n === null || n === undefined) return "–";
  for (const unit of ["", "k", "M", "G"]) {
    if (Math.abs(n) < 999.5) return !unit || n >= 99.95 ? `${Math.round(n)}${unit}` : `${n.toFixed(1)}${unit}`;
    n /= 1000;
  }
  return `${Math.round(n)}T`;
};
const whole = (n) => (n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en"));
const seconds = (s) => {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0";
  if (s < 1) return `${Math.max(1, Math.round(s * 1000))} ms`;
  return s < 100 ? `${s.toFixed(1)} s` : span(s);
};
const span = (s) => {
  if (s === null || s === undefined) return "–";
  if (s < 120) return `${Math.floor(s)} s`;
  return s < 7200 ? `${Math.floor(s / 60)} min` : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
};
const size = (n) => {
  if (n === null || n === undefined) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return `${unit === "B" || n >= 10 ? Math.round(n) : n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} TiB`;
};
const plural = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;
const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");
const add = (values) => values.reduce((sum, value) => sum + (value || 0), 0);
const ready = (replicas) => replicas.filter((each) => each.state === "ready").length;
const worst = (replicas) => {
  if (replicas.length && replicas.every((each) => each.state === "away")) return "away";
  return replicas.some((each) => each.state !== "ready") ? "unready" : "ready";
};

// ---- what is said

function drawVerdict() {
  const [{ level, text, see }, ...more] = state.verdict;
  dress($("verdict"), `verdict ${level}`);
  say($("word"), WORDS[level]);
  say($("title"), text);
  say($("see"), see);
  redraw($("lines"), more, () => more.map((each) => make("li", {}, tied(each.text), " ", make("code", {}, each.see))));
  document.title = `${level === "good" ? "" : `${WORDS[level]} · `}${short(state.figures.events)} ev/s · Headrace live`;
}

// ---- the channel

const kept = new Map(); // nodes by name, so that focus and selection survive an update
function keep(parent, name, build) {
  let found = kept.get(name);
  if (!found) {
    found = build();
    kept.set(name, found);
    parent.append(found.root);
  }
  found.seen = state;
  return found;
}
function sweep() {
  for (const [name, found] of kept) {
    if (found.seen !== state) {
      found.root.remove();
      kept.delete(name);
    }
  }
}

function drawReceivers() {
  for (const each of state.receivers) {
    const row = keep($("receivers"), `receiver ${each.service}`, () => {
      const r = {
        who: make("b"), much: make("span"), dot: make("span", { class: "dot" }), name: make("b"), replicas: make("small"),
        number: document.createTextNode(""), ack: make("span"), flight: make("span"), wait: make("span"), fill: make("i"),
      };
      r.bar = make("div", { class: "bar", role: "img" }, r.fill, make("u"));
      r.source = make("div", { class: "source" }, r.who, r.much);
      const rate = make("span", { class: "rate" }, r.number, make("small", {}, "ev/s"));
      r.card = make("div", { class: "card receiver" }, make("div", { class: "top" }, r.dot, r.name, r.replicas, rate),
        make("div", { class: "facts" }, r.ack, r.flight, r.wait), r.bar);
      r.root = make("div", { class: "intake-row", role: "group", "aria-label": each.service }, r.source, r.card);
      return r;
    });
    const condition = worst(each.replicas);
    say(row.who, `${each.service} clients`);
    say(row.much, each.connections || each.bytes ? `${plural(each.connections, "connection")} · ${size(each.bytes)}/s` : "nobody connected");
    dress(row.dot, `dot ${condition}`);
    say(row.name, each.service);
    say(row.replicas, condition === "ready" && each.replicas.length === 1 ? "" : `${ready(each.replicas)} of ${each.replicas.length} ready`);
    row.number.data = short(each.events);
    say(row.ack, each.p99 === null ? "no acknowledgements now" : `ack p50 ${seconds(each.p50)} · p99 ${seconds(each.p99)}`);
    say(row.flight, `${size(each.used)}${each.budget ? ` of ${size(each.budget)}` : ""} in flight`);
    say(row.wait, each.pending && each.oldest > 0.5 ? `${plural(each.pending, "frame")} wait${each.pending === 1 ? "s" : ""}, ${seconds(each.oldest)}` : "");
    dress(row.wait, each.oldest > 3 ? "hot" : "warm");
    const part = each.budget ? each.used / each.budget : 0;
    row.fill.style.width = part ? `max(3px, ${(100 * part).toFixed(2)}%)` : "0";
    dress(row.bar, part > 0.45 ? "bar hot" : "bar");
    row.bar.setAttribute("aria-label", `${size(each.used)} of ${size(each.budget)} in flight; at half it stops reading`);
    dress(row.card, `card receiver ${condition === "away" ? "bad" : condition === "unready" && !state.down ? "watch" : ""}`);
  }
  const all = state.receivers.flatMap((each) => each.replicas);
  say($("sum-receivers"), all.length ? `${ready(all)} of ${all.length} ready` : "");
}

function drawKafka() {
  const lanes = state.lanes;
  const kafka = state.kafka;
  dress($("kafka"), `card ${state.down ? "bad" : ""}`);
  const brokers = kafka && kafka.brokers ? plural(kafka.brokers, "broker") : "";
  say($("sum-kafka"), state.down ? "" : brokers);
  const told = state.down ? "Stopped: stores nothing" : kafka === null ? "seen through the landing job" : "Stores";
  const line = $("kafka-state");
  dress(line, state.down ? "state bad" : "state");
  if (!line.firstChild) line.append(make("span"), make("span"));
  dress(line.children[0], `dot ${state.down ? "away" : "ready"}`);
  say(line.children[1], told);
  const most = Math.max(1, ...lanes.map((lane) => lane.rate || 0));
  for (const topic of new Set(lanes.map((lane) => lane.topic))) {
    const those = lanes.filter((lane) => lane.topic === topic);
    const group = keep($("lanes"), `topic ${topic}`, () => {
      const g = { title: make("h4"), list: make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": topic }) };
      g.root = make("div", {}, g.title, g.list);
      return g;
    });
    const lag = those.some((lane) => lane.lag === null) ? null : add(those.map((lane) => lane.lag));
    say(group.title, `${topic} · ${lag === 0 ? "all landed" : `lag ${short(lag)}`}`);
    const top = Math.max(most, ...those.map((lane) => lane.rate || 0));
    for (const lane of those) {
      const text = `partition ${lane.number}: ${short(lane.rate)} a second, ${whole(lane.lag)} not landed, ends at ${whole(lane.end)}` +
        (lane.leaderless ? ", without a leader" : lane.short ? ", replicas missing" : "");
      const off = state.down || lane.leaderless;
      const part = Math.min(1, (lane.rate || 0) / top);
      const row = keep(group.list, `lane ${topic} ${lane.number}`, () => {
        const r = { number: make("span"), fill: make("i"), rate: make("span"), lag: make("small") };
        r.root = make("div", { class: "lane", role: "img" }, r.number, make("span", { class: "trough" }, r.fill), r.rate, r.lag);
        return r;
      });
      row.root.setAttribute("aria-label", text);
      row.root.title = text;
      dress(row.root, off ? "lane off" : "lane");
      say(row.number, `p${lane.number}`);
      row.fill.style.width = `${(100 * part).toFixed(1)}%`;
      say(row.rate, lane.rate === null ? (lane.end === null ? "" : "–") : `${short(lane.rate)}/s`);
      say(row.lag, lane.lag === 0 ? "" : `lag ${short(lane.lag)}`);
    }
  }
}

function drawLake() {
  const lake = state.lake;
  const condition = worst(lake.replicas);
  const top = keep($("lake"), "lake", () => {
    const t = { dot: make("span", { class: "dot" }), text: make("span"), number: document.createTextNode(""), facts: make("dl") };
    t.root = make("div", {}, make("p", { class: "state" }, t.dot, t.text), make("p", { class: "big" }, t.number, make("small", {}, "records/s")), t.facts);
    return t;
  });
  const behind = state.figures.behind;
  const late = behind !== null && behind > 20;
  dress(top.dot, `dot ${lake.replicas.length ? condition : "unready"}`);
  say(top.text, !lake.replicas.length ? "Not known here" : condition === "away" ? "Does not answer" : state.down ? "Waits for Kafka" : late && !state.down ? "Catches up" : condition === "ready" ? "Lands" : "Not ready");
  top.number.data = short(lake.landed);
  dress($("lake"), `card ${condition === "away" && lake.replicas.length ? "bad" : late && !state.down ? "watch" : ""}`);
  const facts = [
    ["lag", whole(lake.lag), late ? "warm" : ""],
    ["fresh, p50", seconds(lake.p50)],
    ["fresh, p95", seconds(lake.p95)],
    ["last batch", lake.ago === null ? "–" : `${span(lake.ago)} ago`],
  ];
  redraw(top.facts, facts, () => facts.flatMap(([label, value, mark]) => [make("dt", {}, label), make("dd", { class: mark || "" }, value)]));
}

function drawTables() {
  const tables = state.tables;
  const rows = tables ? tables.rows : {};
  const gaps = tables ? add(tables.gaps.map((gap) => gap.rows)) : null;
  const known = tables && !tables.problem;
  const list = [
    ["events", known ? short(rows.events) : "–", "rows"],
    ["quarantine", known ? short(rows.quarantine) : "–", "rows"],
    ["gaps", known ? whole(gaps) : "–", gaps ? "open" : ""],
  ];
  for (const [name, number, noun] of list) {
    const card = keep($("tables"), `table ${name}`, () => {
      const c = { number: document.createTextNode(""), noun: make("small") };
      c.root = make("div", { class: "card table" }, make("b", {}, name), make("p", { class: "big" }, c.number, c.noun));
      c.root.id = `table-${name}`;
      return c;
    });
    card.number.data = number;
    say(card.noun, known ? noun : "");
    dress(card.root, `card table ${name === "gaps" && gaps ? "watch" : ""}`);
  }
}

// ---- the water

function box(node) {
  const outer = $("race").getBoundingClientRect();
  const inner = node.getBoundingClientRect();
  return { left: inner.left - outer.left, right: inner.right - outer.left, top: inner.top - outer.top, bottom: inner.bottom - outer.top,
    x: (inner.left + inner.right) / 2 - outer.left, y: (inner.top + inner.bottom) / 2 - outer.top };
}
const width = (rate) => (rate > 0 ? Math.min(20, 4 + 3.2 * Math.log10(1 + rate)) : 3);
function across(a, b, y) {
  const from = a.right, to = b.left, end = y === undefined ? b.y : y, bend = (to - from) / 2;
  return `M${from} ${a.y}C${from + bend} ${a.y} ${to - bend} ${end} ${to} ${end}`;
}
function drawFlows() {
  const edges = [];
  const narrow = getComputedStyle($("race")).display === "flex";
  const wide = window.matchMedia("(min-width: 1331px)").matches;
  const kafka = box($("kafka"));
  const lake = box($("lake"));
  const rows = state.receivers.map((each) => ({ each, row: kept.get(`receiver ${each.service}`) })).filter(({ row }) => row);
  rows.forEach(({ each, row }, n) => {
    const source = box(row.source), card = box(row.card);
    const away = worst(each.replicas) === "away";
    edges.push({ name: `in ${each.service}`, path: across(source, card, source.y), rate: each.bytes / 300, open: each.connections > 0 && !away });
    const share = kafka.top + 40 + ((kafka.bottom - kafka.top - 80) * (n + 0.5)) / rows.length;
    const trunk = card.right + 15;
    const path = narrow ? `M${card.right} ${card.y}H${trunk - 8}Q${trunk} ${card.y} ${trunk} ${card.y + 8}V${kafka.top}` : across(card, kafka, share);
    edges.push({ name: `out ${each.service}`, path, rate: each.events, open: !state.down && !away, shut: state.down,
      gate: narrow ? (n ? null : `M${trunk - 11} ${kafka.top - 5}H${trunk + 11}`) : `M${kafka.left - 5} ${share - 11}V${share + 11}` });
  });
  const down = (a, b) => { const x = Math.max(a.left, b.left) + (Math.min(a.right, b.right) - Math.max(a.left, b.left)) / 2; return `M${x} ${a.bottom}V${b.top}`; };
  const landed = state.lake.landed;
  const works = state.lake.replicas.length > 0 && worst(state.lake.replicas) !== "away";
  edges.push({ name: "kafka", path: wide ? across(kafka, lake, kafka.y) : down(kafka, lake), rate: landed || 0, open: works && !state.down, dry: !state.lake.replicas.length });
  for (const [name, share] of [["events", 1], ["quarantine", 0]]) {
    const table = kept.get(`table ${name}`);
    if (!table) continue;
    const to = box(table.root);
    const rate = share ? landed || 0 : (landed || 0) && add(Object.values(state.quarantined)) / Math.max(1, state.figures.span);
    let path = across({ ...lake, y: Math.min(lake.bottom - 20, Math.max(lake.top + 20, to.y)) }, to);
    if (narrow) path = down(lake, to);
    else if (!wide) path = `M${lake.left} ${to.y}H${to.right}`;
    edges.push({ name: `table ${name}`, path, rate, open: works && !state.down, dry: !state.lake.replicas.length });
  }
  const svg = $("flows");
  const outer = $("race").getBoundingClientRect();
  svg.setAttribute("viewBox", `0 0 ${outer.width} ${outer.height}`);
  for (const edge of edges) {
    const flow = keep(svg, `edge ${edge.name}`, () => {
      const f = { bank: make("path", { class: "bank" }), bed: make("path", { class: "bed" }), water: make("path", { class: "water" }),
        foam: make("path", { class: "foam" }), gate: make("path", { class: "gate" }) };
      f.root = make("g", {}, f.bank, f.bed, f.water, f.foam, f.gate);
      return f;
    });
    const runs = edge.open && edge.rate > 0;
    const w = width(runs ? edge.rate : 0);
    for (const path of [flow.bank, flow.bed, flow.water, flow.foam]) path.setAttribute("d", edge.path);
    flow.bank.setAttribute("stroke-width", w + 7);
    flow.bed.setAttribute("stroke-width", w + 4);
    flow.water.setAttribute("stroke-width", w);
    flow.water.style.display = runs || edge.shut ? "" : "none";
    flow.foam.style.display = runs ? "" : "none";
    dress(flow.foam, `foam ${edge.rate > 5000 ? "fast" : edge.rate > 200 ? "mid" : ""}`);
    dress(flow.root, edge.dry ? "dry" : runs ? "" : "still");
    flow.gate.style.display = edge.gate && (edge.shut || runs) ? "" : "none";
    if (edge.gate) flow.gate.setAttribute("d", edge.gate);
    dress(flow.gate, edge.shut ? "gate shut" : "gate");
  }
}

// ---- the last ten minutes

const CHARTS = [
  { title: "Events a second", series: [["stored", "stored", "in Kafka"], ["landed", "landed", "landed"]], text: short, unit: "/s" },
  { title: "Acknowledged within", series: [["p99", "p99", "p99"], ["p50", "p50", "p50"]], text: seconds },
  { title: "In flight", series: [["used", "used", ""]], text: size },
  { title: "Frames that wait for Kafka", series: [["pending", "pending", ""]], text: whole },
  { title: "Longest wait for Kafka", series: [["oldest", "oldest", ""]], text: seconds },
  { title: "Records that have not landed", series: [["lag", "lag", ""]], text: whole },
  { title: "From receipt to table, half of them", series: [["fresh", "fresh", ""]], text: seconds },
  { title: "Not understood, to quarantine", series: [["quarantined", "quarantined", ""]], text: whole, total: true },
];
function buildCharts() {
  for (const chart of CHARTS) {
    chart.now = make("p", { class: "now" });
    chart.values = chart.series.map(([, , label], n) => {
      const number = make("span");
      const key = chart.series.length > 1 ? make("small", {}, make("span", { class: n ? "key two" : "key" }), label) : null;
      chart.now.append(make("span", {}, number, " ", key || ""));
      return number;
    });
    chart.lines = chart.series.map((_, n) => make("path", { class: n ? "two" : "one" }));
    chart.bands = make("g");
    chart.svg = make("svg", { viewBox: "0 0 600 60", preserveAspectRatio: "none", "aria-hidden": "true" }, chart.bands,
      make("line", { x1: 0, x2: 600, y1: 60, y2: 60 }), make("line", { x1: 0, x2: 600, y1: 0, y2: 0 }), ...chart.lines);
    chart.plot = make("div", { class: "plot", role: "img" }, chart.svg);
    chart.most = make("span");
    chart.axis = make("p", { class: "axis" }, make("span", {}, "10 min ago"), chart.most, make("span", {}, "now"));
    $("chart-list").append(make("div", { class: "chart" }, make("h3", {}, chart.title), chart.now, chart.plot, chart.axis));
  }
}
function drawChart(chart) {
  if (!state || !history.length) return;
  const now = state.time;
  const x = (time) => SPAN - (now - time);
  const all = chart.series.map(([field]) => history.map((point) => [point.time, point[field]]));
  const most = Math.max(0, ...all.flat().map(([, value]) => value || 0));
  const top = most > 0 ? most * 1.06 : 1;
  all.forEach((points, n) => {
    let path = "", pen = "M";
    for (const [time, value] of points) {
      if (value !== null) path += `${pen}${x(time).toFixed(1)} ${(60 - (60 * value) / top).toFixed(1)}`;
      pen = value === null ? "M" : "L";
    }
    chart.lines[n].setAttribute("d", path || "M0 0");
  });
  const bands = [];
  history.forEach((point, n) => {
    if (point.kafka !== 0) return;
    const end = n + 1 < history.length ? history[n + 1].time : now;
    const open = bands[bands.length - 1];
    if (open && Math.abs(open[1] - point.time) < 0.2) open[1] = end;
    else bands.push([point.time, end]);
  });
  chart.bands.replaceChildren(...bands.map(([from, to]) => make("rect", { x: x(from), width: Math.max(1, to - from), y: 0, height: 60 })));
  const latest = history[history.length - 1];
  chart.series.forEach(([field], n) => {
    const value = chart.total ? add(history.map((point) => point[field])) : latest[field];
    say(chart.values[n], chart.text(value) + (chart.unit && value !== null ? chart.unit : ""));
  });
  say(chart.most, `most ${chart.text(most)}`);
  const told = chart.series.map(([field, , label]) => `${label} ${chart.text(latest[field])}`).join(", ");
  chart.plot.setAttribute("aria-label", `${chart.title}, now ${told}; most in ten minutes ${chart.text(most)}` +
    (bands.length ? `; Kafka stood still ${plural(bands.length, "time")}` : ""));
}

// ---- quarantine, gaps, processes

function table(head, rows) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text, n) => make("th", { scope: "col", class: n ? "num" : "" }, text)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, n) => make("td", { class: n ? "num" : "" }, text))))));
}
function drawDoubts() {
  const out = [];
  const recent = Object.entries(state.quarantined);
  const since = state.receivers.filter((each) => each.quarantined);
  if (recent.length) out.push(table(["not understood, by reason", `last ${span(state.figures.span)}`], recent.map(([reason, n]) => [reason, whole(n)])));
  else out.push(make("p", { class: "calm" }, `Nothing went to quarantine in the last ${span(state.figures.span)}.`));
  if (since.length) out.push(make("p", { class: "said" }, `Since the receivers started: ${since.map((each) => `${each.service} ${whole(each.quarantined)}`).join(", ")}.`));
  const gaps = state.tables ? state.tables.gaps : [];
  if (gaps.length) out.push(table(["gaps in the tables", "gaps", "missing"], gaps.map((gap) => [gap.reason, whole(gap.rows), whole(gap.lost)])));
  else if (state.tables && !state.tables.problem) out.push(make("p", { class: "calm" }, "The tables know no gap."));
  else out.push(make("p", { class: "calm" }, `Gaps are not known: ${state.tables ? state.tables.problem : "the tables cannot be read from here."}`));
  redraw($("doubts"), out.map((each) => each.textContent), () => out);
}
function drawSources() {
  const rows = state.sources.map((each) => [`${each.service} from ${each.source}`, whole(each.events), size(each.bytes)]);
  const calm = make("p", { class: "calm" }, "Nobody has sent anything in the last minute.");
  redraw($("senders"), rows, () => [rows.length ? table(["source, in the last minute", "events", "bytes"], rows) : calm]);
}
function drawProcesses() {
  const parts = [...state.receivers.map((each) => [each.service, each.replicas]), ["lake", state.lake.replicas]];
  for (const [service, replicas] of parts) {
    for (const each of replicas) {
      const row = keep($("processes"), `process ${service} ${each.url}`, () => {
        const r = { tag: make("span"), up: make("td"), native: make("td"), note: make("td") };
        r.root = make("tr", {}, make("td", {}, service), make("td", { class: "mono" }, each.url.replace("http://", "")), make("td", {}, r.tag), r.up, r.native, r.note);
        return r;
      });
      dress(row.tag, `tag ${each.state}`);
      say(row.tag, { ready: "ready", unready: "not ready", away: "no answer" }[each.state]);
      say(row.up, span(each.up));
      say(row.native, each.native);
      say(row.note, each.note);
    }
  }
}

// ---- the state

function draw() {
  drawVerdict();
  drawReceivers();
  drawKafka();
  drawLake();
  drawTables();
  drawProcesses();
  drawFlows();
  sweep();
  drawDoubts();
  drawSources();
  CHARTS.forEach(drawChart);
  dress($("clock"), "clock");
  say($("clock"), `live · ${clock(state.time)}`);
}
function take(told) {
  if (!told.verdict) return;
  state = told;
  history = [...history, ...told.history].filter((point) => point.time > told.time - SPAN);
  draw();
}
async function ask() {
  asking = 0; // not null: one at a time
  try {
    const since = history.length ? history[history.length - 1].time : 0;
    const answer = await fetch(`state.json?since=${since}`, { signal: AbortSignal.timeout(10000) });
    take(await answer.json());
  } catch {
    dress($("clock"), "clock lost");
    say($("clock"), "no connection to the page's process");
  }
  asking = document.hidden ? null : setTimeout(ask, 1000); // who does not look costs nothing
}
buildCharts();
ask();
document.addEventListener("visibilitychange", () => { if (!document.hidden && asking === null) ask(); });
new ResizeObserver(() => { if (state) drawFlows(); }).observe($("race"));
