// Pareto fronts: a point a mapping, and the stairs through those that no other beats in both figures.

function ticks(low, high, most) {
  const rough = (high - low) / most || Math.abs(high) || 1, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * size).find((one) => one >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) found.push(k * step);
  return found;
}

function stairs(points) {
  // Points that no other beats in both figures, from left to right.
  let least = Infinity;
  return [...points].sort((a, b) => a[1] - b[1] || a[2] - b[2]).filter(([, , y]) => { const on = y < least; least = Math.min(least, y); return on; });
}

function widened(values) {
  const low = Math.min(...values), high = Math.max(...values), room = 0.06 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low - room, high + room];
}

function front(given) {
  const figure = document.getElementById(`chart-front${given.of}`);
  const width = Math.max(240, Math.min(760, figure.clientWidth)), height = 300, left = 72, bottom = 36, right = 14;
  const [x0, x1] = widened(given.points.map((one) => one[1])), [y0, y1] = widened(given.points.map((one) => one[2]));
  const px = (value) => left + (width - left - right) * (value - x0) / (x1 - x0);
  const py = (value) => 10 + (height - bottom - 10) * (y1 - value) / (y1 - y0);
  const [[xName, xUnit], [yName, yUnit]] = [given.x, given.y];
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": `front of ${xName} and ${yName}` });
  svg.setAttribute("class", "front");
  for (const at of ticks(x0, x1, width < 500 ? 3 : 6)) {
    svg.append(element("line", { x1: px(at), x2: px(at), y1: 10, y2: height - bottom, class: "axis" }));
    svg.append(element("text", { x: px(at), y: height - bottom + 15, "text-anchor": "middle", class: "soft" }, si(at, xUnit)));
  }
  for (const at of ticks(y0, y1, 5)) {
    svg.append(element("line", { x1: left, x2: width - right, y1: py(at), y2: py(at), class: "axis" }));
    svg.append(element("text", { x: left - 6, y: py(at) + 4, "text-anchor": "end", class: "soft" }, si(at, yUnit)));
  }
  const line = stairs(given.points), on = new Set(line.map(([number]) => number));
  const path = line.map(([, x, y], k) => (k ? `H${px(x)}V${py(y)}` : `M${px(x)},${py(y)}`)).join("");
  svg.append(element("path", { d: path, class: "roof" }));
  for (const [number, x, y, told] of given.points) {
    const dot = element("circle", { cx: px(x), cy: py(y), r: 5, class: `mark k${on.has(number) ? 0 : 8}`, "data-number": number });
    svg.append(pressable(tell(dot, told), () => findRow(given.of, number)));
  }
  svg.append(element("text", { x: (left + width) / 2, y: height - 2, "text-anchor": "middle", class: "soft" }, xName));
  const words = `${yName[0].toUpperCase()}${yName.slice(1)} over ${xName}; the line joins mappings that no other beats in both, grey ones are better in another figure`;
  figure.replaceChildren(element("figcaption", {}, words), svg);
}

function findRow(of, number) {
  for (const row of document.querySelectorAll(`#front${of} tbody tr`)) {
    const here = Number(row.cells[0].dataset.value) === number;
    row.toggleAttribute("aria-current", here);
    if (here) row.scrollIntoView({ block: "nearest" });
  }
}

function fronts(given) {
  const every = () => given.forEach(front);
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; every(); } });
  every();
}
