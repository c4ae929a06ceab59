// The answer, and each stage against the memory of its GPU.

function showAnswer() {
  document.getElementById("of").textContent = `${raw.job.name} \u00b7 ${raw.file}`;
  const answer = document.getElementById("answer");
  const verdict = document.getElementById("verdict");
  const bill = raw.bill;
  const infeasible = raw.plan && !raw.plan.best;
  const word = infeasible && raw.plan.status === "infeasible" ? "does not fit" : bill ? bill.verdict : raw.plan.status;
  verdict.textContent = { fits: "Fits", edge: "On the edge", "does not fit": "Does not fit" }[word] || word;
  verdict.className = { fits: "fits", edge: "edge" }[word] || "over";
  answer.append(make("p", { class: "lead" },
    `${raw.job.model}${bill ? `, ${grouped(bill.params)} parameters` : ""}, by ${raw.job.framework}${raw.job.cluster ? ` on ${raw.job.cluster}` : ""}`));
  if (!bill) return;
  const line = make("code", {}, bill.line);
  const copy = make("button", { type: "button", class: "copy", onclick: () => {
    if (!navigator.clipboard) return;
    navigator.clipboard.writeText(bill.line).then(() => { copy.textContent = "Copied"; });
  } }, "Copy");
  answer.append(make("div", { class: "layout" }, line, copy));
  if (infeasible) answer.append(make("p", { class: "note" }, "The layout that comes nearest; the pictures below are of it."));
  answer.append(make("dl", { class: "facts" }, ...facts().map(([name, value, more]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, make("strong", {}, value), make("span", {}, more))))));
}

function facts() {
  const bill = raw.bill;
  const stage = stages.find((s) => s.stage === bill.peakStage);
  const left = bill.hbm - bill.peak;
  const found = [
    ["Peak", bytes(bill.peak), `of ${bytes(bill.hbm)}, ${stages.length > 1 ? `stage ${bill.peakStage}` : "each GPU"}${stage.moment ? `, at ${stage.moment}` : ""}`],
    [left < 0 ? "Over" : "Left", bytes(Math.abs(left)), percent(Math.abs(left), bill.hbm)],
  ];
  const best = raw.plan && raw.plan.best;
  if (bill.sequences) found.push(["Sequences", grouped(bill.sequences), `of ${grouped(bill.context)} tokens`]);
  if (bill.stepSeconds) found.push(["Step", duration(bill.stepSeconds), "by the time model"]);
  if (best && best.tokens_per_second) {
    found.push(["Rate", `${grouped(best.tokens_per_second)} tokens/s`, `${grouped(best.tokens_per_second_per_gpu)} tokens/s a GPU`]);
    found.push(["MFU", percent(best.mfu, 1), `${best.tflops_per_gpu.toFixed(1)} TFLOP/s a GPU`]);
  }
  return found;
}

function showStages() {
  const pipeline = stages.length > 1;
  const at = section("memory", "Memory", pipeline ? "Each stage against the line" : "The GPU against the line",
    `What one GPU of ${pipeline ? "each pipeline stage" : "the job"} holds at its worst moment. The line is what the job may fill.`);
  const whole = Math.max(...stages.map((s) => Math.max(s.peak, s.hbm))) * 1.02;
  const used = categories.map((_, i) => Math.max(...stages.map((s) => s.categories[i])));
  at.append(legend(used));
  const detail = make("div", { id: "items", class: "detail" });
  const rows = stages.map((s) => make("button", {
    type: "button", class: "stage", "aria-pressed": "false",
    "aria-label": `Stage ${s.stage}, ${s.layers} layers: ${bytes(s.peak)} of ${bytes(s.hbm)}; ${listed(s.categories)}`,
    onclick: () => choose(s),
    onkeydown: (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const next = by && rows[stages.indexOf(s) + by];
      if (!next) return;
      event.preventDefault();
      next.focus();
      choose(stages[stages.indexOf(s) + by]);
    },
  },
    make("span", { class: "who" }, pipeline ? `stage ${s.stage}` : "each GPU", make("small", {}, `${s.layers} layers`)),
    make("span", { class: "track" }, stack(s.categories, whole), make("span", { class: "line", style: `left:${(100 * s.hbm) / whole}%` })),
    make("span", { class: `what number${s.peak > s.hbm ? " over" : ""}` }, bytes(s.peak), make("small", {}, percent(s.peak, s.hbm)))));
  const line = stages.find((s) => s.stage === raw.bill.peakStage);
  // One line's label, or several where pools have unlike GPUs and there is room.
  const lines = [line.hbm];
  for (const s of stages) if (lines.every((known) => Math.abs(known - s.hbm) > whole / 8)) lines.push(s.hbm);
  at.append(make("div", { class: "stages" },
    make("div", { class: "stage axis", "aria-hidden": "true" }, make("span", { class: "who" }), make("span", { class: "track" },
      ...lines.map((hbm) => make("span", { class: "mark-label", style: `left:${(100 * hbm) / whole}%` }, bytes(hbm)))), make("span", { class: "what" })), ...rows));
  at.append(make("details", {}, make("summary", {}, "The same as a table"), table("Bytes of each category at each stage's peak",
    [{ title: "Stage" }, ...categories.filter((c) => used[c.index] > 0).map((c) => ({ title: c.label, number: true })), { title: "Sum", number: true }, { title: "Memory", number: true }],
    stages.map((s) => [String(s.stage), ...categories.filter((c) => used[c.index] > 0).map((c) => bytes(s.categories[c.index])), bytes(s.peak), bytes(s.hbm)]))));
  at.append(detail);

  function choose(s) {
    rows.forEach((row, i) => row.setAttribute("aria-pressed", String(stages[i] === s)));
    const items = [...s.items].sort((a, b) => b.bytes - a.bytes);
    const few = 10;
    const list = table(`Items of stage ${s.stage} at its peak, largest first`,
      [{ title: "Item" }, { title: "Category" }, { title: "Lives", class: "wide" }, { title: "Bytes", number: true }, { title: "Share", number: true }],
      items.map((item, i) => ({ class: i < few ? null : "further", cells: [[make("span", {}, item.name), make("small", { class: "formula" }, item.formula), item.source ? make("small", { class: "source" }, item.source) : null],
        labelled(item.category), item.lifetime, bytes(item.bytes), percent(item.bytes, s.peak)] })));
    const rest = items.slice(few).reduce((sum, item) => sum + item.bytes, 0);
    const more = items.length > few && make("button", { type: "button", class: "reset", "aria-expanded": "false", onclick: () => {
      const open = list.classList.toggle("all");
      more.setAttribute("aria-expanded", String(open));
      more.textContent = open ? "The largest only" : says;
    } });
    const says = `${items.length - few} more, ${bytes(rest)}`;
    if (more) more.textContent = says;
    detail.replaceChildren(
      make("h3", {}, pipeline ? `Stage ${s.stage}` : "Each GPU", s.moment ? make("small", {}, ` at ${s.moment}`) : null),
      make("p", { class: "sums" }, ...[["tensors", s.live], ["allocated", s.allocated], ["reserved", s.reserved], ["with context and communicators", s.peak]].map(([name, n]) =>
        make("span", {}, `${name} `, make("b", {}, bytes(n))))),
      ...[list, more].filter((part) => part));
  }
  choose(line);
}
