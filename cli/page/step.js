// Bytes over a training step, with what is live under the cursor.

function showStep() {
  const line = raw.timeline;
  const stage = stages.find((s) => s.stage === line.stage);
  const outside = stage ? stage.peak - stage.live : 0;
  const room = stage ? stage.hbm - outside : 0;
  const at = section("step", "Step", "Over the step",
    `Tensors of rank ${line.rank} (stage ${line.stage}) through one step, ${grouped(line.moments)} points in time. Move along it with the pointer, or with the arrow keys; P goes to the peak.`);
  const views = [{ name: "Whole step", columns: unpackColumns(line.step), peak: line.peak.step }];
  if (line.around.length) views.push({ name: "Around the peak", columns: unpackColumns(line.around), peak: line.peak.around });
  let view = views[0];
  let cursor = view.peak;
  let svg = null;
  let scale = null;
  const order = categories.filter((c) => views.some((v) => v.columns.some((column) => column.sums[c.index] > 0)));
  const said = make("div", { class: "readout", id: "readout" });
  const drawn = picture(draw);
  const slider = make("div", {
    class: "slider", role: "slider", tabindex: "0", "aria-label": "Moment of the step", "aria-describedby": "readout", "aria-valuemin": "0",
    onkeydown: (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? view.columns.length - 1 : event.key === "p" || event.key === "P" ? view.peak : steps ? cursor + steps : null;
      if (to === null || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      move(to);
    },
    onpointermove: (event) => point(event),
    onpointerdown: (event) => point(event),
  }, drawn.box);
  if (views.length > 1) at.append(choice("View", views.map((v) => v.name), 0, (i) => {
    view = views[i];
    cursor = view.peak;
    slider.setAttribute("aria-valuemax", String(view.columns.length - 1));
    drawn.again();
    move(cursor);
  }));
  at.append(legend(categories.map((c) => (order.includes(c) ? 1 : 0))));
  at.append(make("div", { class: "step" }, slider, said));
  slider.setAttribute("aria-valuemax", String(view.columns.length - 1));
  const parts = ["forward", "backward", "update", "between"];
  at.append(make("details", {}, make("summary", {}, "The same as a table"), table("The fullest moment of each part of the step",
    [{ title: "Part" }, ...order.map((c) => ({ title: c.label, number: true })), { title: "Sum", number: true }],
    parts.map((part) => views.flatMap((v) => v.columns).filter((c) => c.part === part).reduce((a, b) => (a && a.bytes >= b.bytes ? a : b), null)).filter((c) => c)
      .map((c) => [c.part, ...order.map((o) => bytes(c.sums[o.index])), bytes(c.bytes)]))));
  move(cursor);

  function point(event) {
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * scale.width;
    move(Math.floor(((x - scale.left) / (scale.right - scale.left)) * view.columns.length));
  }

  function where(column) {
    if (column.part === "update") return "optimizer step";
    if (column.part === "between") return "between steps";
    const batch = column.microBatch >= 0 ? ` of micro-batch ${column.microBatch}` : "";
    return `${column.part}${column.many ? ", passes that repeat each other" : batch}${line.chunks > 1 ? `, piece ${column.chunk}` : ""}`;
  }

  function move(to) {
    cursor = Math.max(0, Math.min(view.columns.length - 1, to));
    const column = view.columns[cursor];
    const peak = cursor === view.peak;
    slider.setAttribute("aria-valuenow", String(cursor));
    slider.setAttribute("aria-valuetext", `${where(column)}: ${bytes(column.bytes)}${peak ? ", the peak" : ""}`);
    const items = [...column.items].sort((a, b) => b.bytes - a.bytes);
    const shown = items.slice(0, 11);
    const rest = items.slice(11).reduce((sum, item) => sum + item.bytes, 0);
    said.replaceChildren(
      make("p", { class: "moment" }, make("strong", {}, bytes(column.bytes)), " ", peak ? make("span", { class: "peak" }, "the peak") : null,
        make("small", {}, peak ? line.peak.moment : where(column)), make("small", {}, peak ? where(column) : `${percent(column.bytes, line.peak.bytes)} of the peak`)),
      table("Live at this moment", [{ title: "Item" }, { title: "Bytes", number: true }],
        [...shown.map((item) => [[swatch(item.category), " ", item.name], bytes(item.bytes)]), ...(rest ? [[`${items.length - 11} more`, bytes(rest)]] : [])]));
    if (svg) place();
  }

  function place() {
    const x = scale.x(cursor + 0.5);
    const mark = svg.querySelector(".cursor");
    mark.setAttribute("x1", x);
    mark.setAttribute("x2", x);
  }

  function draw(width) {
    const height = Math.max(220, Math.min(340, width * 0.42));
    const left = 62, right = width - 8, top = 26, bottom = height - 40;
    const most = Math.max(line.peak.bytes, room) * 1.04;
    const columns = view.columns;
    const x = (i) => left + ((right - left) * i) / columns.length;
    const y = (n) => bottom - ((bottom - top) * n) / most;
    scale = { x, left, right, width };
    svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Bytes over the step: from ${bytes(Math.min(...columns.map((c) => c.bytes)))} to ${bytes(line.peak.bytes)} at ${line.peak.moment}` });
    for (const n of ticks(most)) {
      svg.append(make("line", { class: "grid", x1: left, x2: right, y1: y(n), y2: y(n) }));
      svg.append(make("text", { class: "tick", x: left - 6, y: y(n) + 4, "text-anchor": "end" }, tick(n)));
    }
    const floor = columns.map(() => 0);
    for (const c of order) {
      const up = columns.map((column, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(floor[i] + column.sums[c.index]).toFixed(1)}H${x(i + 1).toFixed(1)}`).join("");
      const down = columns.map((_, i) => columns.length - 1 - i).map((i) => `V${y(floor[i]).toFixed(1)}H${x(i).toFixed(1)}`).join("");
      svg.append(make("path", { class: `area c-${c.name}`, d: `${up}${down}Z` }));
      columns.forEach((column, i) => { floor[i] += column.sums[c.index]; });
    }
    // What happens when, below.
    let begin = 0;
    for (let i = 1; i <= columns.length; ++i) {
      const one = columns[begin];
      if (i < columns.length && columns[i].part === one.part && columns[i].microBatch === one.microBatch && columns[i].many === one.many) continue;
      const wide = x(i) - x(begin);
      svg.append(make("rect", { class: `pass ${one.many ? "many" : one.part}`, x: x(begin) + 0.5, y: bottom + 6, width: Math.max(1, wide - 1), height: 12 }));
      const words = one.many ? "\u2026" : one.part === "forward" || one.part === "backward" ? `${one.part[0].toUpperCase()}${one.microBatch}` : one.part;
      if (wide > words.length * 7) svg.append(make("text", { class: "pass-label", x: (x(begin) + x(i)) / 2, y: bottom + 31, "text-anchor": "middle" }, words));
      begin = i;
    }
    if (room > 0) {
      svg.append(make("line", { class: "limit", x1: left, x2: right, y1: y(room), y2: y(room) }));
      svg.append(make("text", { class: "limit-label", x: right, y: y(room) - 6, "text-anchor": "end" }, width > 560 ? `room for tensors ${bytes(room)}: ${bytes(stage.hbm)} less ${bytes(outside)} around them` : `room for tensors ${bytes(room)}`));
    }
    const px = x(view.peak + 0.5), py = y(line.peak.bytes);
    svg.append(make("circle", { class: "peak-dot", cx: px, cy: py, r: 5 }));
    const before = px > (left + right) / 2;
    // Beside the peak, and below the line of the limit where the two come close.
    const near = room > 0 && Math.abs(py - y(room)) < 24;
    const beside = near ? Math.max(py, y(room)) + 14 : Math.max(py - 7, 12);
    svg.append(make("text", { class: "peak-label", x: px + (before ? -9 : 9), y: beside, "text-anchor": before ? "end" : "start" }, `peak ${bytes(line.peak.bytes)}`));
    svg.append(make("line", { class: "cursor", y1: top - 6, y2: bottom + 20 }));
    place();
    return svg;
  }
}
