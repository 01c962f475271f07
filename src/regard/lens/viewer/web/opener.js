// Unpacks the data, the style of the views and the script of the page, which the file holds deflated, in a quarter of
// the space, and runs the script. The policy of the page names the hashes of both scripts, so no other text would run.
"use strict";
(async () => {
  const text = (held) => {
    const packed = Uint8Array.from(atob(held.textContent), (sign) => sign.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const [data, style, held] = ["data", "style", "script"].map((name) => document.getElementById(name));
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(await text(style));
  document.adoptedStyleSheets = [sheet];
  data.textContent = await text(data);
  const script = document.createElement("script");
  script.textContent = await text(held);
  held.replaceWith(script);
})().catch((error) => {
  const problem = document.getElementById("problem");
  problem.textContent = `This browser cannot open the page: ${error.message}. Browsers from 2023 on can.`;
  problem.hidden = false;
});
