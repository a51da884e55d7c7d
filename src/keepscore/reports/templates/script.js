"use strict";
// The likelihood surfaces: a map (two parameters, or a slice of three) or a curve (one parameter).
// State in, one SVG out; every change of a control draws everything again.
(function () {
  const data = JSON.parse(document.getElementById("surface-data").textContent);
  const byId = (id) => document.getElementById(id);
  const stage = byId("surface");
  const dims = data.axes.length;
  const DEPTHS = [1, 3, 10, 30, 100]; // thin lines and ticks of the colour bar
  const DEEPEST = 100;
  const percent = +(100 * data.level).toPrecision(4) + "%";
  const state = { group: 0, method: "", fixed: 2, slice: 0, at: null };

  // --- numbers and elements ------------------------------------------------------------------
  const text = (v) => (v === null || !isFinite(v) ? "−∞" : String(+v.toPrecision(4)).replace("-", "−"));
  function make(space, tag, attributes, children) {
    const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const key in attributes) if (attributes[key] !== null) node.setAttribute(key, attributes[key]);
    for (const child of [].concat(children === undefined ? [] : children)) node.append(child);
    return node;
  }
  const svg = (tag, attributes, children) => make("http://www.w3.org/2000/svg", tag, attributes, children);
  const html = (tag, attributes, children) => make(null, tag, attributes, children);
  const short = (name) => (name.length > 32 ? name.slice(0, 31) + "…" : name); // fits beside an axis
  const round = (v) => Math.round(v * 10) / 10;

  function ticks(low, high, count) {
    const rough = (high - low) / count;
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = power * [1, 2, 2.5, 5, 10].find((m) => power * m >= 0.999 * rough);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(+(k * step).toPrecision(12));
    return found;
  }

  // --- the data as seen ----------------------------------------------------------------------
  const group = () => data.groups[state.group];
  const surfaceOf = (method) => group().surfaces.find((s) => s.method === method);
  const exactOf = () => group().surfaces.find((s) => s.exact);
  const shownAxes = () => [0, 1, 2].slice(0, dims).filter((k) => dims < 3 || k !== state.fixed);
  const nearest = (axis, v) => axis.values.reduce((best, w, k) => (Math.abs(w - v) < Math.abs(axis.values[best] - v) ? k : best), 0);

  // Value at index i of the first shown axis and j of the second; null in the file is -infinity.
  function valueAt(surface, i, j) {
    let v;
    if (dims === 1) v = surface.values[i];
    else if (dims === 2) v = surface.values[i][j];
    else {
      const index = state.fixed === 0 ? [state.slice, i, j] : state.fixed === 1 ? [i, state.slice, j] : [i, j, state.slice];
      v = surface.values[index[0]][index[1]][index[2]];
    }
    return v === null ? -Infinity : v;
  }
  const offSlice = (theta) =>
    dims === 3 && nearest(data.axes[state.fixed], theta[state.fixed]) !== state.slice;

  // --- colour --------------------------------------------------------------------------------
  const stops = data.ramp.map((c) => [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)));
  const share = (depth) => 1 - Math.log1p(Math.min(depth, DEEPEST)) / Math.log1p(DEEPEST);
  function colour(depth) {
    const at = share(depth) * (stops.length - 1);
    const k = Math.min(Math.floor(at), stops.length - 2);
    return stops[k].map((c, n) => Math.round(c + (stops[k + 1][n] - c) * (at - k)));
  }

  // The map as a picture: the grid's values between its nodes, linear in each direction.
  function heat(surface, nx, ny, columns, rows) {
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const depth = (i, j) => Math.min(-valueAt(surface, i, j), 1e4);
    for (let r = 0; r < rows; r++) {
      const b = (1 - (r + 0.5) / rows) * (ny - 1), j = Math.min(Math.floor(b), ny - 2), v = b - j;
      for (let c = 0; c < columns; c++) {
        const a = ((c + 0.5) / columns) * (nx - 1), i = Math.min(Math.floor(a), nx - 2), u = a - i;
        const value = (1 - u) * ((1 - v) * depth(i, j) + v * depth(i, j + 1)) + u * ((1 - v) * depth(i + 1, j) + v * depth(i + 1, j + 1));
        image.data.set([...colour(value), 255], 4 * (r * columns + c));
      }
    }
    context.putImageData(image, 0, 0);
    return canvas.toDataURL("image/png");
  }

  // Marching squares: where the surface crosses -depth, joined to lines so that dashes run on.
  function contour(surface, nx, ny, depth, px, py) {
    const links = new Map(), places = new Map();
    const f = (i, j) => Math.max(valueAt(surface, i, j), -1e4) + depth;
    const [ax, ay] = shownAxes().map((k) => data.axes[k].values);
    function crossing(i, j, i2, j2) {
      const key = i + "," + j + "," + i2 + "," + j2;
      const a = f(i, j), t = a / (a - f(i2, j2));
      places.set(key, [px(ax[i] + t * (ax[i2] - ax[i])), py(ay[j] + t * (ay[j2] - ay[j]))]);
      return key;
    }
    const link = (a, b) => [[a, b], [b, a]].forEach(([p, q]) => links.set(p, (links.get(p) || []).concat(q)));
    for (let i = 0; i + 1 < nx; i++)
      for (let j = 0; j + 1 < ny; j++) {
        const up = [f(i, j), f(i + 1, j), f(i + 1, j + 1), f(i, j + 1)].map((v) => v >= 0);
        const edges = [];
        if (up[0] !== up[1]) edges.push(crossing(i, j, i + 1, j));
        if (up[1] !== up[2]) edges.push(crossing(i + 1, j, i + 1, j + 1));
        if (up[2] !== up[3]) edges.push(crossing(i, j + 1, i + 1, j + 1));
        if (up[3] !== up[0]) edges.push(crossing(i, j, i, j + 1));
        for (let k = 0; k + 1 < edges.length; k += 2) link(edges[k], edges[k + 1]);
      }
    let path = "";
    const seen = new Set();
    // Open lines first (their ends have one neighbour), then the closed ones.
    const starts = [...links.keys()].sort((a, b) => links.get(a).length - links.get(b).length);
    for (const start of starts) {
      if (seen.has(start)) continue;
      let here = start, word = "M";
      while (here !== undefined) {
        seen.add(here);
        path += word + places.get(here).map(round).join(" ");
        word = "L";
        const next = links.get(here).find((k) => !seen.has(k));
        if (next === undefined && here !== start && links.get(here).includes(start) && links.get(start).length > 1) path += "Z";
        here = next;
      }
    }
    return path;
  }

  // --- marks: shape first, colour second -----------------------------------------------------
  function mark(kind, x, y, r, faded) {
    const shapes = {
      truth: `M${-r} ${-r}L${r} ${r}M${-r} ${r}L${r} ${-r}`,
      exact: [...Array(10).keys()].map((k) => {
        const s = (k % 2 ? 0.55 : 1.35) * r, t = (Math.PI * k) / 5;
        return (k ? "L" : "M") + round(s * Math.sin(t)) + " " + round(-s * Math.cos(t));
      }).join("") + "Z",
      mle: `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`,
    };
    const open = kind === "truth";
    const back = svg("path", { d: shapes[kind], fill: open ? "none" : "#fff", stroke: "#fff", "stroke-width": open ? 6 : 4.5, "stroke-linecap": "round" });
    const front = svg("path", { d: shapes[kind], fill: open ? "none" : kind === "exact" ? "#ffd23f" : "#fff", stroke: open ? "#c01616" : "#111", "stroke-width": open ? 2.6 : 1.8, "stroke-linecap": "round" });
    return svg("g", { transform: `translate(${round(x)} ${round(y)})`, opacity: faded ? 0.45 : null, class: "mark " + kind }, [back, front]);
  }

  // --- drawing -------------------------------------------------------------------------------
  function frame(width, height, small) {
    return { left: small ? 44 : 58, right: width - 12, top: 8, bottom: height - (small ? 42 : 46) };
  }
  function axesOf(box, x, y, names, small) {
    const parts = [];
    for (const v of ticks(x.low, x.high, small ? 3 : 5))
      parts.push(svg("line", { x1: x.to(v), x2: x.to(v), y1: box.bottom, y2: box.bottom + 5, class: "a" }), svg("text", { x: x.to(v), y: box.bottom + 18, "text-anchor": "middle" }, text(v)));
    for (const v of ticks(y.low, y.high, small ? 4 : 6))
      parts.push(svg("line", { x1: box.left - 5, x2: box.left, y1: y.to(v), y2: y.to(v), class: "a" }), svg("text", { x: box.left - 8, y: y.to(v) + 4, "text-anchor": "end" }, text(v)));
    const mid = (box.top + box.bottom) / 2;
    parts.push(
      svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, fill: "none", class: "frame" }),
      svg("text", { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle", class: "t" }, short(names[0])),
      svg("text", { x: 12, y: mid, transform: `rotate(-90 12 ${mid})`, "text-anchor": "middle", class: "t" }, short(names[1])));
    return parts;
  }
  const scale = (low, high, from, to) => ({ low, high, to: (v) => from + ((v - low) / (high - low)) * (to - from), back: (p) => low + ((p - from) / (to - from)) * (high - low) });
  const ends = (axis) => [axis.values[0], axis.values[axis.values.length - 1]];

  function drawMap(surface, width, height, small) {
    const [a, b] = shownAxes().map((k) => data.axes[k]);
    const [ka, kb] = shownAxes();
    const box = frame(width, height - (small ? 0 : 58), small);
    const x = scale(...ends(a), box.left, box.right), y = scale(...ends(b), box.bottom, box.top);
    const [nx, ny] = [a.values.length, b.values.length];
    const w = box.right - box.left, h = box.bottom - box.top;
    const id = "clip-" + (small ? "small-" + group().surfaces.indexOf(surface) : "main");
    const parts = [
      svg("clipPath", { id }, svg("rect", { x: box.left, y: box.top, width: w, height: h })),
      svg("image", { x: box.left, y: box.top, width: w, height: h, preserveAspectRatio: "none", href: heat(surface, nx, ny, Math.ceil(w / 3), Math.ceil(h / 3)) }),
    ];
    const line = (d, stroke, thick, dash, name) => svg("path", { d, fill: "none", stroke, "stroke-width": thick, "stroke-dasharray": dash || null, "clip-path": `url(#${id})`, class: name || null });
    const lines = (s, depth) => contour(s, nx, ny, depth, x.to, y.to);
    for (const depth of DEPTHS) if (depth !== 3) parts.push(line(lines(surface, depth), depth < 3 ? "#ffffff99" : "#0a2c4d59", 1));
    const d = lines(surface, surface.cut);
    const exact = exactOf();
    const e = exact && exact !== surface && byId("pick-overlay").checked ? lines(exact, exact.cut) : "";
    // White edges first, so that where the two sets agree the dashes lie on the solid line.
    parts.push(line(d, "#fff", 5), line(e, "#fff", 4.5), line(d, "#111", 2.4, "", "set"));
    if (e) parts.push(line(e, "#e07414", 2.2, "6 5", "exact-set"));
    const put = (kind, theta) => theta && parts.push(mark(kind, x.to(theta[ka]), y.to(theta[kb]), small ? 4.5 : 6, offSlice(theta)));
    if (exact && exact !== surface) put("exact", exact.mle);
    put(surface.exact ? "exact" : "mle", surface.mle);
    put("truth", group().truth);
    parts.push(...axesOf(box, x, y, [a.name, b.name], small));
    if (!small) parts.push(...colourBar(box, height));
    return { node: parts, x, y, box };
  }

  function colourBar(box, height) {
    const top = height - 38, w = Math.min(box.right - box.left - 12, 320), parts = [];
    const stepsOf = 40;
    for (let k = 0; k < stepsOf; k++) {
      const depth = Math.expm1((k + 0.5) / stepsOf * Math.log1p(DEEPEST));
      parts.push(svg("rect", { x: round(box.left + (w * k) / stepsOf), y: top, width: round(w / stepsOf) + 0.5, height: 10, fill: `rgb(${colour(depth).join(",")})` }));
    }
    parts.push(svg("rect", { x: box.left, y: top, width: w, height: 10, fill: "none", class: "frame" }));
    for (const depth of [0, ...DEPTHS])
      parts.push(svg("text", { x: box.left + w * (1 - share(depth)), y: top + 24, "text-anchor": "middle" }, depth ? "−" + depth : "0"));
    parts.push(svg("text", { x: box.left, y: top - 5, class: "u" }, "log-likelihood below its maximum"));
    return parts;
  }

  function drawCurve(surface, width, height, small) {
    const axis = data.axes[0], box = frame(width, height, small);
    const x = scale(...ends(axis), box.left, box.right), y = scale(-Math.max(4 * surface.cut, 6), 0.4, box.bottom, box.top);
    const clip = "clip-curve" + (small ? group().surfaces.indexOf(surface) : "");
    const parts = [svg("clipPath", { id: clip }, svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top }))];
    const trace = (s) => axis.values.map((v, i) => (i ? "L" : "M") + round(x.to(v)) + " " + round(y.to(Math.max(valueAt(s, i), -1e3)))).join("");
    const line = (s, stroke, thick, dash, name) => svg("path", { d: trace(s), fill: "none", stroke, "stroke-width": thick, "stroke-dasharray": dash || null, "clip-path": `url(#${clip})`, class: name });
    parts.push(svg("line", { x1: box.left, x2: box.right, y1: y.to(-surface.cut), y2: y.to(-surface.cut), class: "n" }));
    const exact = exactOf();
    if (exact && exact !== surface && byId("pick-overlay").checked) parts.push(line(exact, "#e07414", 2, "6 4", "exact-set"));
    parts.push(line(surface, "#111", 2.4, "", "set"));
    const put = (kind, theta) => theta && parts.push(mark(kind, x.to(theta[0]), y.to(0), small ? 4.5 : 6));
    if (exact && exact !== surface) put("exact", exact.mle);
    put(surface.exact ? "exact" : "mle", surface.mle);
    put("truth", group().truth);
    parts.push(...axesOf(box, x, y, [axis.name, small ? "log-likelihood" : "log-likelihood below its maximum"], small));
    return { node: parts, x, y, box };
  }
  const draw = (...given) => (dims === 1 ? drawCurve : drawMap)(...given);

  // --- reading values ------------------------------------------------------------------------
  let drawn = null;
  function defaultPoint() {
    const theta = group().truth || surfaceOf(state.method).mle;
    if (!theta || offSlice(theta)) return null;
    return { index: shownAxes().map((k) => nearest(data.axes[k], theta[k])), why: group().truth ? "at the grid point nearest the truth" : "at the grid point nearest the maximum" };
  }
  function read() {
    const at = state.at || defaultPoint(), out = byId("readout");
    for (const old of stage.querySelectorAll(".cursor")) old.remove();
    if (!at) return out.replaceChildren(html("p", { class: "where" }, "Point at the surface to read values."));
    const [i, j] = at.index, shown = shownAxes();
    const names = shown.map((k, n) => {
      const axis = data.axes[k], index = at.index[n];
      return axis.raw ? `${axis.rawName || axis.name} = ${text(axis.raw[index])}` : `${axis.name} = ${text(axis.values[index])}`;
    });
    const working = shown.map((k, n) => `${data.axes[k].name} = ${text(data.axes[k].values[at.index[n]])}`);
    const rows = group().surfaces.map((s) => {
      const v = valueAt(s, i, j);
      return html("tr", s.method === state.method ? { class: "shown" } : {}, [
        html("th", { scope: "row" }, s.label), html("td", { class: "n" }, isFinite(v) ? v.toFixed(2).replace("-", "−") : "−∞"), html("td", { class: "n" }, v >= -s.cut ? "inside" : "outside")]);
    });
    const head = html("thead", {}, html("tr", {}, [html("th", { scope: "col" }, "Likelihood"), html("th", { scope: "col", class: "n" }, "below max"), html("th", { scope: "col", class: "n" }, percent + " set")]));
    out.replaceChildren(html("p", {}, names.join(", ")), html("p", { class: "where" }, working.join(", ") + (state.at ? "" : "; " + at.why)), html("table", {}, [head, html("tbody", {}, rows)]));
    if (state.at) {
      const { x, y, box } = drawn, cx = x.to(data.axes[shown[0]].values[i]);
      const lines = [svg("line", { x1: cx, x2: cx, y1: box.top, y2: box.bottom })];
      if (dims > 1) { const cy = y.to(data.axes[shown[1]].values[j]); lines.push(svg("line", { x1: box.left, x2: box.right, y1: cy, y2: cy })); }
      stage.firstChild.append(svg("g", { class: "cursor", stroke: "#111", "stroke-width": 1, "stroke-dasharray": "2 2", "pointer-events": "none" }, lines));
    }
  }

  function redraw() {
    const surface = surfaceOf(state.method) || group().surfaces[0];
    state.method = surface.method;
    const width = Math.max(280, Math.round(stage.clientWidth)), height = Math.round(Math.min(width * 0.86, 560)) + (dims > 1 ? 58 : 0);
    drawn = draw(surface, width, height, false);
    stage.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", "data-method": surface.method }, drawn.node));
    const fixed = dims === 3 ? data.axes[state.fixed] : null;
    const slice = fixed ? `${fixed.name} = ${text(fixed.values[state.slice])}` + (fixed.raw ? ` (${fixed.rawName} = ${text(fixed.raw[state.slice])})` : "") : "";
    if (fixed) {
      byId("slice-text").textContent = slice;
      byId("pick-slice").setAttribute("aria-valuetext", slice);
    }
    byId("multiples").replaceChildren(...group().surfaces.map((s) => html("figure", {}, [html("h3", {}, s.label), svg("svg", { viewBox: "0 0 240 224", role: "img", "aria-label": "Likelihood surface of " + s.label }, draw(s, 240, 224, true).node)])));
    byId("multiples-caption").textContent = `${group().name}${slice ? ", at " + slice : ""}. Solid line: ${percent} set; dashed: that of the exact likelihood. Circle: maximum; star: exact maximum; cross: truth. Thin lines: 1, 10, 30 and 100 below the maximum.`;
    legend(surface);
    read();
  }

  function legend(surface) {
    const icon = (child) => svg("svg", { width: 26, height: 16, viewBox: "0 0 26 16", "aria-hidden": "true" }, child);
    const stroke = (colour, dash) => icon(svg("line", { x1: 1, x2: 25, y1: 8, y2: 8, stroke: colour, "stroke-width": 2.4, "stroke-dasharray": dash }));
    const exact = exactOf(), other = exact && exact !== surface;
    const items = [];
    items.push([stroke("#111", null), dims === 1 ? `${surface.label}; dashed level: ${percent} interval` : `${percent} set, ${surface.label}`]);
    if (other && byId("pick-overlay").checked) items.push([stroke("#e07414", "6 4"), dims === 1 ? "exact" : `${percent} set, exact`]);
    if (surface.mle && !surface.exact) items.push([icon(mark("mle", 13, 8, 5)), `maximum, ${surface.label}`]);
    if (exact && exact.mle) items.push([icon(mark("exact", 13, 8, 5)), "maximum, exact"]);
    if (group().truth) items.push([icon(mark("truth", 13, 8, 5)), "truth"]);
    if (dims === 3) items.push([icon(mark("mle", 13, 8, 5, true)), "faded: off this slice"]);
    byId("keys").replaceChildren(...items.map((pair) => html("li", {}, pair)));
  }

  // --- controls ------------------------------------------------------------------------------
  function methodsOf() {
    const chosen = surfaceOf(state.method) || group().surfaces[0];
    state.method = chosen.method;
    byId("pick-method").replaceChildren(...group().surfaces.map((s) => {
      const input = html("input", { type: "radio", name: "method", value: s.method });
      input.checked = s === chosen;
      input.addEventListener("change", () => { state.method = s.method; redraw(); });
      return html("label", {}, [input, s.label]);
    }));
    byId("pick-overlay").closest("p").hidden = !exactOf();
  }
  // A slice through the maximum (the exact one where there is one) says most.
  function centreSlice() {
    if (dims < 3) return;
    const axis = data.axes[state.fixed], from = exactOf() || surfaceOf(state.method);
    state.slice = from.mle ? nearest(axis, from.mle[state.fixed]) : Math.floor(axis.values.length / 2);
    byId("pick-slice").max = axis.values.length - 1;
    byId("pick-slice").value = state.slice;
  }
  byId("pick-group").addEventListener("change", (event) => {
    state.group = +event.target.value;
    state.at = null;
    methodsOf(); centreSlice(); redraw();
  });
  byId("pick-overlay").addEventListener("change", redraw);
  if (dims === 3) {
    byId("pick-axis").addEventListener("change", (event) => { state.fixed = +event.target.value; state.at = null; centreSlice(); redraw(); });
    byId("pick-slice").addEventListener("input", (event) => { state.slice = +event.target.value; redraw(); });
  }
  byId("controls").addEventListener("submit", (event) => event.preventDefault());

  function point(event) {
    const area = stage.firstChild.getBoundingClientRect(), grow = stage.firstChild.viewBox.baseVal.width / area.width;
    const px = (event.clientX - area.left) * grow, py = (event.clientY - area.top) * grow, { x, y, box } = drawn;
    if (px < box.left || px > box.right || py < box.top || py > box.bottom) state.at = null;
    else state.at = { index: shownAxes().map((k, n) => nearest(data.axes[k], n ? y.back(py) : x.back(px))) };
    read();
  }
  stage.addEventListener("pointermove", point);
  stage.addEventListener("pointerdown", point);
  stage.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { state.at = null; read(); } });
  stage.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "Escape") state.at = null;
    else if (moves[event.key]) {
      const axes = shownAxes().map((k) => data.axes[k].values.length);
      const from = (state.at || defaultPoint() || { index: axes.map((n) => n >> 1) }).index;
      state.at = { index: from.map((v, n) => Math.min(Math.max(v + moves[event.key][n], 0), axes[n] - 1)) };
    } else return;
    event.preventDefault();
    read();
  });

  byId("viewer").hidden = false;
  methodsOf(); centreSlice(); redraw();
  let width = stage.clientWidth;
  new ResizeObserver(() => { if (stage.clientWidth && stage.clientWidth !== width) { width = stage.clientWidth; redraw(); } }).observe(stage);
})();
