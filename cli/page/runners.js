// Where a step's time goes, the runners-up, and what to change where nothing fits.

function showPlan() {
  const plan = raw.plan;
  if (plan.causes && plan.causes.length) showCauses(plan);
  const points = [];
  const add = (p, rank) => points.push({ ...p, rank, headroomBytes: null });
  if (plan.best) add(plan.best, "1");
  plan.alternatives.forEach((p, i) => add(p, String(i + 2)));
  (plan.pareto || []).filter((p) => !points.some((known) => known.describe === p.describe)).forEach((p, i) => add(p, `p${i + 1}`));
  if (points.length > 1 && !raw.job.serve) showRunners(plan, points);
  if (points.length > 1 && raw.job.serve) showServers(points);
}

function showCauses(plan) {
  const at = section("time", "Time", "Where a step goes", `${duration(plan.best.step_seconds)} a step, by the time model; what is hidden behind something else is not counted twice.`);
  const most = Math.max(...plan.causes.map(([, s]) => s));
  at.append(table("Time of a step", [{ title: "Cause" }, { title: "", class: "bar-cell" }, { title: "Time", number: true }, { title: "Share", number: true }],
    plan.causes.map(([name, s]) => [name, make("span", { class: "time-bar", style: `width:${(100 * s) / most}%`, "aria-hidden": "true" }), duration(s), percent(s, plan.best.step_seconds)])));
}

function showRunners(plan, points) {
  const at = section("runners", "Runners-up", "The runners-up", "Steps that differ by less than 5 % are ties: the time model tells no finer. Down and to the right of a point is worse.");
  const chosen = { at: null };
  const drawn = picture(draw);
  const rows = points.map((p, i) => ({
    cells: [p.rank, duration(p.step_seconds), bytes(p.peak_bytes), percent(p.headroom, 1), p.loses || "", make("code", {}, unbroken(p.describe))],
    tabindex: "0", "data-point": String(i),
    onfocus: () => light(i), onblur: () => light(null), onpointerenter: () => light(i), onpointerleave: () => light(null),
  }));
  const list = table("Layouts that fit, best first", [{ title: "#", class: "rank" }, { title: "Step", number: true }, { title: "Peak", number: true }, { title: "Left", number: true }, { title: "Loses by", class: "wide" }, { title: "Layout" }], rows);
  at.append(make("figure", {}, drawn.box, make("figcaption", {}, "Time of a step against the share of memory left")), list);

  function light(i) {
    chosen.at = i;
    for (const mark of drawn.box.querySelectorAll("[data-point]")) mark.classList.toggle("on", mark.dataset.point === String(i));
    for (const row of list.querySelectorAll("[data-point]")) row.classList.toggle("on", row.dataset.point === String(i));
  }

  function draw(width) {
    const height = Math.max(200, Math.min(300, width * 0.4));
    const left = 52, right = width - 24, top = 14, bottom = height - 44;
    const times = points.map((p) => p.step_seconds), lefts = points.map((p) => p.headroom);
    const span = (list) => {
      const low = Math.min(...list), high = Math.max(...list), pad = (high - low || high * 0.02 || 0.01) * 0.12;
      return [low - pad, high + pad];
    };
    const [t0, t1] = span(times), [h0, h1] = [Math.min(0, ...lefts), Math.max(...lefts) * 1.12 || 0.1];
    const x = (t) => left + ((right - left) * (t - t0)) / (t1 - t0), y = (h) => bottom - ((bottom - top) * (h - h0)) / (h1 - h0);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${points.length} layouts by time of a step and memory left; the table below has the same numbers` });
    for (const h of rounds(h0, h1)) svg.append(make("line", { class: "grid", x1: left, x2: right, y1: y(h), y2: y(h) }), make("text", { class: "tick", x: left - 6, y: y(h) + 4, "text-anchor": "end" }, trimmed(percent(h, 1))));
    let said = "";
    for (const t of rounds(t0, t1, width > 480 ? 5 : 2)) {
      const label = trimmed(duration(t));
      if (label !== said) svg.append(make("line", { class: "grid", x1: x(t), x2: x(t), y1: bottom, y2: bottom + 4 }), make("text", { class: "tick", x: x(t), y: bottom + 18, "text-anchor": x(t) > right - 24 ? "end" : "middle" }, label));
      said = label;
    }
    svg.append(make("text", { class: "axis-label", x: right, y: height - 6, "text-anchor": "end" }, "time of a step \u2192"));
    svg.append(make("text", { class: "axis-label", x: left, y: top - 2, "text-anchor": "start" }, "memory left"));
    // Drawn last to first, so that the best lies on top.
    [...points.keys()].reverse().forEach((i) => {
      const p = points[i];
      svg.append(make("g", { class: `point${i ? "" : " best"}`, "data-point": String(i), onpointerenter: () => light(i), onpointerleave: () => light(null) },
        make("title", {}, `${p.describe}: ${duration(p.step_seconds)}, ${percent(p.headroom, 1)} left`),
        make("circle", { cx: x(p.step_seconds), cy: y(p.headroom), r: i ? 8 : 10 }),
        make("text", { x: x(p.step_seconds), y: y(p.headroom) + 3.5, "text-anchor": "middle" }, p.rank)));
    });
    return svg;
  }
}

function showServers(points) {
  const at = section("runners", "Runners-up", "The runners-up");
  at.append(table("Layouts, best first", [{ title: "#" }, { title: "Sequences", number: true }, { title: "Peak", number: true }, { title: "Left", number: true }, { title: "Layout" }],
    points.map((p) => [p.rank, grouped(p.sequences), bytes(p.peak_bytes), percent(p.headroom, 1), make("code", {}, unbroken(p.describe))])));
}

function showWhy(plan) {
  if (plan.core.length) {
    const at = section("core", "Why", "What cannot hold together", plan.core_over_bytes ? `Together they are ${bytes(plan.core_over_bytes)} over, at the least; without any one of them something fits.` : "Without any one of them something fits.");
    at.append(table("The smallest set", [{ title: "What" }, { title: "Where", class: "wide" }, { title: "Bytes", number: true }],
      plan.core.map((c) => [c.name, c.file ? `${c.file}:${c.line}` : "", c.bytes ? bytes(c.bytes) : ""])));
  }
  if (plan.relaxations.length) {
    const at = section("changes", "Changes", "What would make it fit", "Each is a single change that was made and planned again.");
    const train = !raw.job.serve;
    at.append(table("Changes", [{ title: "Change" }, ...(train ? [{ title: "Step", number: true }] : []), { title: "Peak", number: true }, { title: "Left", number: true }, { title: "A layout that fits then" }],
      plan.relaxations.map((r) => [r.change, ...(train ? [duration(r.best.step_seconds)] : []), bytes(r.best.peak_bytes), percent(r.best.headroom, 1), make("code", {}, unbroken(r.best.describe))])));
  }
}
