import plugin from "plugin.txt";

let made = 0;
const glue = `
export default {
  async fetch(request) {
    return new Response(JSON.stringify(tools.order(JSON.parse(await request.text()))));
  },
};`;

export default {
  async fetch(request, env) {
    const input = await request.text();
    // A name of its own for each call: a worker is never used twice.
    const fresh = env.LOADER.get(`call-${made++}`, async () => ({
      compatibilityDate: "2026-01-01",
      mainModule: "plugin.js",
      modules: { "plugin.js": plugin + glue },
      globalOutbound: null,
    }));
    return fresh.getEntrypoint().fetch("http://plugin/", { method: "POST", body: input });
  },
};
