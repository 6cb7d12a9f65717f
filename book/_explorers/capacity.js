// The capacity explorer: bounds on D_K for sizes that the reader chooses. The formulas
// come from the library's expressions, in the element's data.
"use strict";

(() => {
  // ln Γ by Stirling's series, after steps up to 10 where it has 1e-13.
  const lgamma = x => {
    let shift = 0;
    for (; x < 10; x += 1) shift -= Math.log(x);
    const y = 1 / (x * x);
    return shift + (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI)
      + (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x;
  };

  const AXES = [  // name in formulas, label, smallest and largest power of two, start
    ["m", "vertices m", 3, 14, 8], ["perVertex", "relations per vertex, m'/m", 0, 3, 0],
    ["d", "d_model", 2, 12, 6], ["D_K", "total key dimension D_K", 0, 12, 4],
  ];
  const KINDS = { trained: ["#0173b2", "circle"], constructed: ["#d55e00", "square"] };
  const X = [0.5, 512], Y = [0.5, 4096], WIDTH = 640, HEIGHT = 360, LEFT = 56, BOTTOM = 44;
  const px = x => LEFT + (WIDTH - LEFT - 12) * Math.log(x / X[0]) / Math.log(X[1] / X[0]);
  const py = y => 10 + (HEIGHT - 10 - BOTTOM) * (1 - Math.log(y / Y[0]) / Math.log(Y[1] / Y[0]));
  const clip = (value, [low, high]) => Math.min(Math.max(value, low), high);
  const number = value => Number(value.toPrecision(3)).toLocaleString("en");

  function start(root) {
    const { formulas, points, rate } = JSON.parse(root.dataset.model);
    const call = Object.fromEntries(Object.entries(formulas).map(([name, code]) =>
      [name, new Function("lgamma", "m", "e", "d", "p", "D_K", `return ${code};`)]));
    const compute = ({ m, e, d, p = 16, D_K }) => {
      const value = name => call[name](lgamma, m, e, d, p, D_K), load = value("bits") * 2 * D_K / d;
      return { counting: value("counting"), signs: value("signs"), bits: value("bits"), load,
        builtHeads: Math.max(1, value("heads_built")), trainedHeads: Math.max(1, rate * load) };
    };
    root.innerHTML = `<div class="explorer-controls">${AXES.map(([name, label, low, high, at]) =>
      `<label>${label}: <output data-of="${name}"></output><input type="range" name="${name}"
        min="${low}" max="${high}" step="0.25" value="${at}"></label>`).join("")}</div>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img"></svg>
      <div class="explorer-scroll"><table><tbody></tbody></table></div>
      <p class="explorer-verdict" aria-live="polite"></p>`;
    const inputs = [...root.querySelectorAll("input")];
    const read = () => {
      const at = Object.fromEntries(inputs.map(i => [i.name, Math.round(2 ** i.valueAsNumber)]));
      return { m: at.m, e: at.m * Math.min(at.perVertex, at.m), d: at.d, D_K: at.D_K, perVertex: at.perVertex };
    };

    function draw() {
      const state = read(), found = compute(state);
      for (const input of inputs) {
        root.querySelector(`[data-of="${input.name}"]`).textContent = number(state[input.name]);
        input.setAttribute("aria-valuetext", number(state[input.name]));
      }
      const lines = [["counting", "counting, 16 bits a weight"], ["signs", "any precision"]];
      const grid = [1, 4, 16, 64, 256].map(x => `<text x="${px(x)}" y="${HEIGHT - 26}" text-anchor="middle">${x}</text>
        <line x1="${px(x)}" x2="${px(x)}" y1="10" y2="${HEIGHT - BOTTOM}" stroke="currentColor" opacity="0.15"/>`).join("")
        + [1, 8, 64, 512, 4096].map(y => `<text x="${LEFT - 8}" y="${py(y) + 4}" text-anchor="end">${y}</text>
        <line x1="${LEFT}" x2="${WIDTH - 12}" y1="${py(y)}" y2="${py(y)}" stroke="currentColor" opacity="0.15"/>`).join("");
      const curves = lines.map(([name, label], index) => {
        const path = [];
        for (let x = X[0]; x <= X[1]; x *= 1.15) {  // other numbers of vertices, all else the same
          const m = x * state.d * state.m / state.e;
          const y = m > state.e / state.m ? compute({ ...state, m, e: x * state.d })[name] : NaN;
          if (y >= Y[0] && y <= Y[1]) path.push(`${px(x).toFixed(1)},${py(y).toFixed(1)}`);
        }
        const end = (path.at(-1) ?? "0,0").split(",");
        return `<polyline points="${path.join(" ")}" fill="none" stroke="#757575" stroke-width="2"
          stroke-dasharray="${index ? "6 4" : ""}"/><text x="${Math.min(+end[0], WIDTH - 20)}"
          y="${+end[1] + 16 + 14 * index}" text-anchor="end">${label}</text>`;
      }).join("");
      const marks = points.map(([kind, m, d, h, D_K]) => {
        const x = px(clip(m / d, X)), y = py(clip(D_K, Y)), [colour, shape] = KINDS[kind];
        const title = `<title>${kind}: m = ${m}, d_model = ${d}, ${h} heads, D_K = ${D_K}</title>`;
        return shape === "circle" ? `<circle cx="${x}" cy="${y}" r="4" fill="${colour}">${title}</circle>`
          : `<rect x="${x - 3.5}" y="${y - 3.5}" width="7" height="7" fill="${colour}">${title}</rect>`;
      }).join("");
      const you = [px(clip(state.e / state.d, X)), py(clip(state.D_K, Y))];
      const svg = root.querySelector("svg");
      svg.innerHTML = `${grid}${curves}${marks}<path d="M${you[0] - 9} ${you[1]}h18M${you[0]} ${you[1] - 9}v18"
        stroke="currentColor" stroke-width="3"/><text x="${WIDTH / 2}" y="${HEIGHT - 6}" text-anchor="middle">relations
        per dimension, m'/d_model</text><text transform="rotate(-90 14 ${HEIGHT / 2})" x="14" y="${HEIGHT / 2}"
        text-anchor="middle">D_K</text><circle cx="${LEFT + 16}" cy="22" r="4" fill="#0173b2"/><text x="${LEFT + 26}"
        y="26">trained</text><rect x="${LEFT + 92}" y="18.5" width="7" height="7" fill="#d55e00"/><text
        x="${LEFT + 106}" y="26">constructed</text><text x="${LEFT + 192}" y="26">+ yours</text>`;
      svg.setAttribute("aria-label", `Your channel at ${number(state.e / state.d)} relations per dimension and D_K ${state.D_K}, `
        + `among lower bounds and ${points.length} channels of the book.`);
      root.querySelector("tbody").innerHTML = [
        ["no channel below (weights of 16 bits)", found.counting], ["no channel below (any precision)", found.signs],
        ["bits per parameter of yours", found.bits], ["bits of the graph per d_model², the most a head can use", found.load],
        ["heads for a trained channel, about", found.trainedHeads], ["heads for the construction", found.builtHeads],
      ].map(([name, value]) => `<tr><th scope="row">${name}</th><td>${number(value)}</td></tr>`).join("");
      root.querySelector(".explorer-verdict").textContent =
        state.D_K < found.signs ? "Impossible: whatever the weights, some graph of this size is out of reach."
        : state.D_K < found.counting ? "Impossible with weights of 16 bits."
        : found.bits > 1.4 ? "Not excluded by any bound, but each weight would have to store more than any trained channel of this book does."
        : found.bits > 0.3 ? "Where trained channels live: about one bit of the graph in each weight. "
          + (found.load > 0.7 ? "One head is full, or nearly: several are best." : "One head is best.")
        : "Room to spare: even channels that are written down may do.";
    }
    root.addEventListener("input", draw);
    root.compute = compute;  // for the tests
    draw();
  }

  document.querySelectorAll('[data-explorer="capacity"]').forEach(start);
})();
