// The beginning: builds every screen, listens to the address, and draws what it asks for.

for (const screen of screens) screen.build();
addEventListener("hashchange", () => { if (location.hash !== address()) choose({ view: null, key: null, pins: [], ...asked(location.hash) }); });
dark.addEventListener("change", redraw);
addEventListener("resize", () => draw(new Set(["size"])));
Object.assign(state, { ...asked(location.hash) });
choose({}).then(redraw).then(() => {
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
});
