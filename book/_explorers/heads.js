// The heads explorer: two heads on four or five nodes, their walks and their signals.
"use strict";

(() => {
  const HORIZON = 200, SHOWN = 20, MOST = 100000;
  const NAMES = ["head A", "head B", "both"], COLOURS = ["#0173b2", "#d55e00", "#029e73"];
  const DASHES = ["", "7 4", "2 3"];
  const range = n => [...Array(n).keys()];
  const matrix = (n, entry) => range(n).map(i => range(n).map(j => entry(i, j)));

  // flows[i][j]: what node i reads from node j; a node always keeps its own.
  const flows = (n, edges) => matrix(n, (i, j) => +(i === j || edges.some(([s, t]) => s === j && t === i)));
  const scaled = (a, byRow) => {
    const sums = range(a.length).map(k => range(a.length).reduce((sum, l) => sum + (byRow ? a[k][l] : a[l][k]), 0));
    return matrix(a.length, (i, j) => a[i][j] / sums[byRow ? i : j]);
  };
  const mixed = (a, b, weight) => matrix(a.length, (i, j) => (1 - weight) * a[i][j] + weight * b[i][j]);
  const hittingTimes = walk => {  // one pass, from the last node backwards
    const n = walk.length, times = Array(n).fill(0);
    for (let j = n - 2; j >= 0; j -= 1) {
      let progress = 0, ahead = 1;
      for (let i = j + 1; i < n; i += 1) {
        progress += walk[i][j];
        if (walk[i][j] > 0) ahead += walk[i][j] * times[i];
      }
      times[j] = progress > 0 ? ahead / progress : Infinity;
    }
    return times;
  };
  const mixingTime = walk => {  // the least t with P_j(T > t) <= 1/4 from every start
    const n = walk.length;
    if (hittingTimes(walk).some(time => time === Infinity)) {
      const lost = j => j < n - 1 && lost_[j] > 0.25;
      const lost_ = Array(n).fill(0);
      for (let j = n - 2; j >= 0; j -= 1) {
        let progress = 0, sum = 0;
        for (let i = j + 1; i < n; i += 1) { progress += walk[i][j]; sum += walk[i][j] * lost_[i]; }
        lost_[j] = progress > 0 ? sum / progress : 1;
      }
      if (range(n).some(j => lost_[j] >= 0.25 - 1e-13 && lost_[j] > 0) && range(n).some(lost)) return Infinity;
    }
    let survival = range(n).map(j => +(j < n - 1));
    for (let t = 0; t < MOST; t += 1) {
      if (Math.max(...survival) <= 0.25 * (1 + 1e-12)) return t;
      survival = range(n).map(j => range(n).reduce((sum, i) => sum + survival[i] * walk[i][j], 0));
    }
    return Infinity;
  };
  const signals = (diffusion, steps) => {  // row t - 1: what the sink holds of each node after t steps
    const n = diffusion.length, rows = [diffusion[n - 1]];
    while (rows.length < steps) {
      const last = rows.at(-1);
      rows.push(range(n).map(j => range(n).reduce((sum, i) => sum + last[i] * diffusion[i][j], 0)));
    }
    return rows;
  };

  function compute({ nodes, heads, weight }) {
    const each = heads.map(edges => flows(nodes, edges));
    const walks = each.map(a => scaled(a, false)), diffusions = each.map(a => scaled(a, true));
    walks.push(mixed(...walks, weight));
    diffusions.push(mixed(...diffusions, weight));
    return walks.map((walk, k) => {
      const rows = signals(diffusions[k], HORIZON);
      const fidelity = range(nodes - 1).map(j => Math.max(...rows.map(row => row[j])));
      return { walk, times: hittingTimes(walk), mixing: mixingTime(walk), rows, fidelity };
    });
  }

  const show = x => x === Infinity ? "never" : String(Number(x.toFixed(3)));
  const name = (node, nodes) => node === nodes - 1 ? "τ" : "uvwx"[node];

  function start(root) {
    const { nodes, presets } = JSON.parse(root.dataset.model);
    const state = { nodes, weight: 0.5, heads: Object.values(presets)[0].map(head => head.map(edge => [...edge])) };
    state.nodes = Math.max(nodes, 2 + Math.max(...state.heads.flat().map(([, t]) => t - 1)));
    root.innerHTML = `<div class="explorer-controls"><label>Start from <select name="preset">${Object.keys(presets)
      .map(title => `<option>${title}</option>`).join("")}</select></label><label>Nodes <select name="nodes">
      <option>4</option><option>5</option></select></label><label>Weight of head B: <output></output>
      <input type="range" name="weight" min="0" max="1" step="0.01" value="0.5"></label></div>
      <div class="explorer-controls" data-part="edges"></div><svg role="img" viewBox="0 0 660 250"></svg>
      <div class="explorer-scroll"><table></table></div><div class="explorer-scroll" data-part="walk"></div>
      <p class="explorer-verdict" aria-live="polite"></p>`;
    const $ = selector => root.querySelector(selector);

    function drawEdges() {
      $('[data-part="edges"]').innerHTML = [0, 1].map(head => `<fieldset><legend>Edges of head ${"AB"[head]}</legend>${
        range(state.nodes).flatMap(s => range(state.nodes).filter(t => t > s).map(t => [s, t])).map(([s, t]) =>
          `<label><input type="checkbox" data-edge="${head},${s},${t}" ${state.heads[head].some(e => e[0] === s && e[1] === t)
            ? "checked" : ""}> ${name(s, state.nodes)} → ${name(t, state.nodes)}</label>`).join("")}</fieldset>`).join("");
    }

    function draw() {
      const found = compute(state), n = state.nodes;
      $("output").textContent = state.weight.toFixed(2);
      $('[name="nodes"]').value = n;
      // Left: the two graphs as arcs; right: the weakest node's signal, step by step.
      const x = node => 40 + node * 210 / (n - 1);
      const arcs = state.heads.flatMap((edges, head) => edges.map(([s, t]) => {
        const up = head ? 1 : -1, middle = (x(s) + x(t)) / 2, reach = 125 + up * (18 + 26 * (t - s));
        return `<path d="M${x(s)} ${125 + up * 13}Q${middle} ${reach + up * 14} ${x(t)} ${125 + up * 13}" fill="none"
          stroke="${COLOURS[head]}" stroke-width="2.5" stroke-dasharray="${DASHES[head]}"/>
          <path d="M${x(t)} ${125 + up * 13}l${-6} ${up * 9}l9 ${up * 1}z" fill="${COLOURS[head]}"/>`;
      })).join("");
      const circles = range(n).map(node => `<circle cx="${x(node)}" cy="125" r="13" fill="#757575"/>
        <text x="${x(node)}" y="130" text-anchor="middle" style="fill:white">${name(node, n)}</text>`).join("");
      const sx = t => 330 + (t - 1) * 300 / (SHOWN - 1), sy = value => 215 - 190 * value;
      const lines = found.map((part, k) => {
        const weakest = part.fidelity.indexOf(Math.min(...part.fidelity));
        const path = range(SHOWN).map(t => `${sx(t + 1).toFixed(1)},${sy(part.rows[t][weakest]).toFixed(1)}`);
        return `<polyline points="${path.join(" ")}" fill="none" stroke="${COLOURS[k]}" stroke-width="2.5"
          stroke-dasharray="${DASHES[k]}"/><line x1="${370 + 90 * k}" x2="${392 + 90 * k}" y1="12" y2="12"
          stroke="${COLOURS[k]}" stroke-width="2.5" stroke-dasharray="${DASHES[k]}"/><text x="${396 + 90 * k}" y="16">${NAMES[k]}</text>`;
      }).join("");
      const axes = [0, 0.5, 1].map(v => `<line x1="330" x2="630" y1="${sy(v)}" y2="${sy(v)}" stroke="currentColor" opacity="0.2"/>
        <text x="322" y="${sy(v) + 4}" text-anchor="end">${v}</text>`).join("")
        + [1, 10, 20].map(t => `<text x="${sx(t)}" y="232" text-anchor="middle">${t}</text>`).join("");
      $("svg").innerHTML = `${arcs}${circles}${axes}${lines}<text x="480" y="247" text-anchor="middle">step; signal of the weakest node at the sink</text>`;
      $("svg").setAttribute("aria-label", `Head A above the nodes with ${state.heads[0].length} edges, head B below with ${
        state.heads[1].length}; beside them the weakest signals over ${SHOWN} steps.`);
      const rows = [["slowest start, expected steps", p => show(Math.max(...p.times))], ["T_mix(1/4)", p => show(p.mixing)],
        ["weakest signal", p => show(Math.min(...p.fidelity))],
        ["weakest node", p => name(p.fidelity.indexOf(Math.min(...p.fidelity)), n)],
        ...range(n - 1).map(j => [`expected steps from ${name(j, n)}`, p => show(p.times[j])]),
        ...range(n - 1).map(j => [`signal of ${name(j, n)} at its best`, p => show(p.fidelity[j])])];
      $("table").innerHTML = `<thead><tr><th></th>${NAMES.map(title => `<th scope="col">${title}</th>`).join("")}</tr></thead><tbody>${
        rows.map(([title, of]) => `<tr><th scope="row">${title}</th>${found.map(p => `<td>${of(p)}</td>`).join("")}</tr>`).join("")}</tbody>`;
      $('[data-part="walk"]').innerHTML = `<table><caption>Walk matrix of both: from the column's node to the row's</caption><tbody><tr><th></th>${
        range(n).map(j => `<th scope="col">${name(j, n)}</th>`).join("")}</tr>${found[2].walk.map((row, i) =>
        `<tr><th scope="row">${name(i, n)}</th>${row.map(v => `<td>${show(v)}</td>`).join("")}</tr>`).join("")}</tbody></table>`;
      const [a, b, both] = found, slowest = p => Math.max(...p.times), clear = p => Math.min(...p.fidelity);
      const speed = slowest(both) < Math.min(slowest(a), slowest(b)) - 1e-12 ? "faster than each alone"
        : slowest(both) > Math.max(slowest(a), slowest(b)) + 1e-12 ? "slower than each alone" : "no faster than the faster head";
      const clarity = clear(both) > Math.max(clear(a), clear(b)) + 1e-12 ? "clearer than each alone" : "no clearer than the clearer head";
      $(".explorer-verdict").textContent = `Together the heads are ${speed}, and ${clarity}.`;
    }

    root.addEventListener("input", ({ target }) => {
      if (target.name === "weight") state.weight = target.valueAsNumber;
      if (target.name === "preset") {
        state.heads = presets[target.value].map(head => head.map(edge => [...edge]));
        state.nodes = Math.max(4, 1 + Math.max(...state.heads.flat().map(([, t]) => t)));
        drawEdges();
      }
      if (target.name === "nodes") {
        // The sink stays the last node: edges to it move along.
        const before = state.nodes - 1, after = Number(target.value) - 1;
        state.heads = state.heads.map(head => head.map(([s, t]) => [s, t === before ? after : t])
          .filter(([s, t]) => s < t && s < after && t <= after));
        state.nodes = after + 1;
        drawEdges();
      }
      if (target.dataset.edge) {
        const [head, s, t] = target.dataset.edge.split(",").map(Number);
        state.heads[head] = state.heads[head].filter(e => e[0] !== s || e[1] !== t);
        if (target.checked) state.heads[head].push([s, t]);
      }
      draw();
    });
    root.compute = compute;  // for the tests
    drawEdges();
    draw();
  }

  document.querySelectorAll('[data-explorer="heads"]').forEach(start);
})();
