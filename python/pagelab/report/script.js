"use strict";

// Text and lines have the colour of the page, so that a change of scheme and printing need no new charts.
const ink = { labelColor: "currentColor", titleColor: "currentColor" };
const config = {
  background: null,
  font: getComputedStyle(document.body).fontFamily,
  view: { stroke: null },
  axis: {
    ...ink,
    domainColor: "currentColor",
    domainOpacity: 0.4,
    tickColor: "currentColor",
    tickOpacity: 0.4,
    gridColor: "currentColor",
    gridOpacity: 0.12,
    labelFontSize: 12,
    titleFontSize: 12,
    titleFontWeight: "normal",
  },
  legend: { ...ink, labelFontSize: 12 },
  header: { ...ink, labelFontSize: 12 },
  title: { color: "currentColor" },
};

const drawn = new WeakSet();

function draw(figure) {
  if (drawn.has(figure)) return;
  drawn.add(figure);
  const spec = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  if (plot.clientWidth < 600) {
    // Legends go into rows, and labels have less room.
    for (const { encoding } of spec.layer ?? [spec]) {
      const { color, x } = encoding;
      if (color?.legend) color.legend.columns = 2;
      x.axis = { ...x.axis, tickCount: 4 };
    }
  }
  // Charts of several parts are not wide by themselves; their labels need the rest.
  if (spec.encoding?.row) spec.width = Math.max(240, plot.clientWidth - 130);
  vegaEmbed(plot, spec, { actions: false, renderer: "svg", config }).catch((error) => {
    plot.textContent = `This chart could not be drawn: ${error.message}`;
    console.error(error);
  });
}

// A chart takes its width from its place, which it has when it is seen.
function drawVisible() {
  for (const figure of document.querySelectorAll("figure.chart")) {
    const closed = figure.closest("details:not([open])");
    if (!closed) draw(figure);
  }
}

for (const details of document.querySelectorAll("details")) {
  details.addEventListener("toggle", drawVisible);
}
drawVisible();
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:has(figure)")) details.open = true;
  drawVisible();
});
