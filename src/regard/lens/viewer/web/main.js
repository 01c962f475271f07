// Start-up: builds every screen, reads the view from the URL fragment, and draws it.

for (const screen of screens) screen.build();
addEventListener("hashchange", () => { if (location.hash !== address()) choose({ view: null, key: null, pins: [], ...readAddress(location.hash) }); });
dark.addEventListener("change", redraw);
addEventListener("resize", () => draw(new Set(["size"])));
Object.assign(state, { ...readAddress(location.hash) });
choose({}).then(redraw).then(() => {
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
});
