// The workshop: what the fullest GPU would hold if things were otherwise. Every combination was
// priced beforehand by the evaluator that made the bill.

function showWorkshop() {
  const shop = raw.workshop;
  const at = section("workshop", "Workshop", "Workshop",
    "The same layout with another model, micro-batch, sequence, attention, recomputation or ZeRO. Every combination was priced by the evaluator that made the bill; only fragmentation is estimated, by the framework's factor, where the bill replays the allocator.");
  const state = [...shop.own];
  const [MODEL, ATTENTION, RECOMPUTE, ZERO, BATCH, SEQ] = [0, 1, 2, 3, 4, 5];
  const activations = categories.findIndex((c) => c.name === "activations");
  const batch = (seq) => shop.batches[state[BATCH]] * shop.seqs[seq];

  const modelId = "workshop-model", tokensId = "workshop-tokens";
  const models = make("select", { id: modelId, onchange: (event) => set(MODEL, event.target.selectedIndex) }, ...shop.models.map(([name, params], i) => make("option", { selected: i === state[MODEL] }, `${name}, ${(params / 1e9).toFixed(1)} billion`)));
  const size = make("output", { for: tokensId, class: "number" });
  const range = make("input", { id: tokensId, type: "range", min: "0", max: String(shop.seqs.length - 1), step: "1", value: String(state[SEQ]), oninput: (event) => set(SEQ, Number(event.target.value)) });
  const field = (name, control) => make("div", { class: "field" }, make("span", { class: "label" }, name), control);
  const reset = make("button", { type: "button", class: "reset", onclick: () => { state.splice(0, 6, ...shop.own); build(); show(); } }, "Back to the file's");
  const controls = make("div", { class: "controls" });
  const result = make("div", { class: "result", "aria-live": "polite" });
  const drawn = picture(draw);
  const curve = make("figure", {}, drawn.box, make("figcaption", {}, "Activations of the fullest GPU against the tokens of a micro-batch"));
  const details = make("div", {});
  at.append(make("div", { class: "workshop" }, controls, make("div", { class: "outcome" }, result, curve, make("details", {}, make("summary", {}, "The curve as a table"), details))));

  function build() {
    models.selectedIndex = state[MODEL];
    range.value = String(state[SEQ]);
    controls.replaceChildren(
      make("div", { class: "field" }, make("label", { class: "label", for: modelId }, "Model"), models),
      make("div", { class: "field" }, make("label", { class: "label", for: tokensId }, "Tokens a micro-batch ", size), range),
      field("Sequences a micro-batch", choice("Sequences a micro-batch", shop.batches.map(String), state[BATCH], (i) => set(BATCH, i))),
      field("Attention", choice("Attention", shop.attentions, state[ATTENTION], (i) => set(ATTENTION, i))),
      field("Recompute", choice("Recompute", shop.recomputes, state[RECOMPUTE], (i) => set(RECOMPUTE, i))),
      field("ZeRO", choice("ZeRO stage", shop.zeros.map(String), state[ZERO], (i) => set(ZERO, i))), reset);
  }

  function set(axis, to) {
    state[axis] = to;
    show();
  }

  function show() {
    const point = workshopPoint(state);
    size.textContent = `${tokens(batch(state[SEQ]))}`;
    range.setAttribute("aria-valuetext", `${grouped(batch(state[SEQ]))} tokens`);
    if (!point) {
      result.replaceChildren(make("p", { class: "say over" }, "This layout cannot run it: its degrees do not divide the model or the sequence."));
    } else {
      const whole = Math.max(point.hbm, point.peak) * 1.02;
      const left = point.hbm - point.peak;
      result.replaceChildren(
        make("p", { class: `say ${left < 0 ? "over" : "fits"}` }, make("strong", { id: "workshop-peak" }, bytes(point.peak)), ` of ${bytes(point.hbm)} on stage ${point.stage}: `,
          left < 0 ? `${bytes(-left)} over` : `${bytes(left)} left, ${percent(left, point.hbm)}`),
        make("div", { class: "track big" }, stack(point.sums, whole), make("span", { class: "line", style: `left:${(100 * point.hbm) / whole}%` })),
        make("ul", { class: "sums-list" }, ...categories.filter((c) => point.sums[c.index] > 0).map((c) => make("li", {}, labelled(c.index), " ", make("b", { class: "number" }, bytes(point.sums[c.index]))))));
    }
    drawn.again();
    const at = (recompute) => shop.seqs.map((_, seq) => workshopPoint([state[MODEL], state[ATTENTION], recompute, state[ZERO], state[BATCH], seq]));
    const lines = shop.recomputes.map((_, r) => at(r));
    details.replaceChildren(table("Activations by tokens of a micro-batch", [{ title: "Tokens", number: true }, ...shop.recomputes.map((name) => ({ title: name, number: true }))],
      shop.seqs.map((_, seq) => [grouped(batch(seq)), ...lines.map((l) => (l[seq] ? bytes(l[seq].sums[activations]) : "\u2013"))])));
  }

  function draw(width) {
    const height = Math.max(220, Math.min(320, width * 0.5));
    const left = 62, right = width - 78, top = 14, bottom = height - 42;
    const lines = shop.recomputes.map((_, r) => shop.seqs.map((_, seq) => workshopPoint([state[MODEL], state[ATTENTION], r, state[ZERO], state[BATCH], seq])));
    const own = lines[state[RECOMPUTE]];
    const here = own[state[SEQ]];
    // Up to three times the memory: past it nothing is to be seen.
    const hbm = Math.max(...lines.flat().map((p) => (p ? p.hbm : 0)), 1);
    const most = Math.min(Math.max(...lines.flat().map((p) => (p ? p.sums[activations] : 0)), hbm * 0.5), hbm * 1.6);
    const low = Math.log2(batch(0)), high = Math.log2(batch(shop.seqs.length - 1));
    const along = (t) => left + ((right - left) * (Math.log2(t) - low)) / (high - low || 1);
    const x = (seq) => along(batch(seq));
    const y = (n) => bottom - ((bottom - top) * n) / most;
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Activations against tokens of a micro-batch; ${here ? `${bytes(here.sums[activations])} at ${grouped(batch(state[SEQ]))} tokens` : "not possible here"}. The table below has the numbers.` });
    for (const n of ticks(most)) svg.append(make("line", { class: "grid", x1: left, x2: right, y1: y(n), y2: y(n) }), make("text", { class: "tick", x: left - 6, y: y(n) + 4, "text-anchor": "end" }, tick(n)));
    shop.seqs.forEach((_, seq) => {
      if (width > 520 || seq % 2 === 0) svg.append(make("text", { class: "tick", x: x(seq), y: bottom + 18, "text-anchor": "middle" }, tokens(batch(seq))));
    });
    svg.append(make("text", { class: "axis-label", x: right, y: height - 6, "text-anchor": "end" }, "tokens a micro-batch \u2192"));
    const path = (points) => {
      let before = null;
      return points.map((p, seq) => {
        if (!p) return (before = null, "");
        const [t, n] = [batch(seq), p.sums[activations]];
        const steps = [];
        // Straight in tokens between the points that were priced, which bends on this axis.
        for (let i = before ? 1 : 8; i <= 8; ++i) {
          const part = i / 8;
          const [at, size] = before ? [before[0] + part * (t - before[0]), before[1] + part * (n - before[1])] : [t, n];
          steps.push(`${before || steps.length ? "L" : "M"}${along(at).toFixed(1)} ${Math.max(y(size), -400).toFixed(1)}`);
        }
        before = [t, n];
        return steps.join("");
      }).join("");
    };
    const clip = make("svg", { x: left, y: top - 8, width: right - left + 78, height: bottom - top + 8, viewBox: `${left} ${top - 8} ${right - left + 78} ${bottom - top + 8}` });
    const taken = [];
    lines.forEach((points, r) => {
      const chosen = r === state[RECOMPUTE];
      clip.append(make("path", { class: `curve${chosen ? " on" : ""}`, d: path(points) }));
      points.forEach((p, seq) => p && p.sums[activations] <= most && clip.append(make("circle", { class: `curve-dot${chosen ? " on" : ""}`, cx: x(seq), cy: y(p.sums[activations]), r: chosen ? 3 : 2 })));
      const last = points.map((p, seq) => [p, seq]).filter(([p]) => p && p.sums[activations] <= most).pop();
      if (!last) return;
      let down = y(last[0].sums[activations]) + 4;
      while (taken.some((other) => Math.abs(other - down) < 13)) down -= 13;
      taken.push(down);
      svg.append(make("text", { class: `curve-label${chosen ? " on" : ""}`, x: x(last[1]) + 8, y: Math.max(down, top) }, shop.recomputes[r]));
    });
    svg.append(clip);
    if (here) {
      const room = here.hbm - (here.peak - here.sums[activations]);
      if (room > 0 && room < most) svg.append(make("line", { class: "limit", x1: left, x2: right, y1: y(room), y2: y(room) }), make("text", { class: "limit-label", x: left + 4, y: y(room) - 6 }, width > 420 ? `room for activations ${bytes(room)}` : `room ${bytes(room)}`));
      if (here.sums[activations] <= most) svg.append(make("circle", { class: "peak-dot", cx: x(state[SEQ]), cy: y(here.sums[activations]), r: 5 }));
    }
    return svg;
  }

  build();
  show();
}

showAnswer();
if (raw.plan && !raw.plan.best) showWhy(raw.plan);
if (stages.length) showStages();
if (raw.timeline) showStep();
if (raw.plan) showPlan();
if (raw.workshop) showWorkshop();
document.getElementById("foot").append(
  make("p", {}, `Made by plimsoll ${raw.version}, 'plimsoll ${raw.command} --html', from ${raw.file}. Bytes are exact by the model of memory; 1 GiB is 2\u00b3\u2070 bytes. Reserved is ${raw.job.reservedNote}.`));
