// Serves plugin calls with isolated-vm: a new isolate for each, in this one process, with a code cache made once.
// node isolated-vm.mjs SOCKET PLUGIN
import fs from "node:fs";
import http from "node:http";
import ivm from "isolated-vm";

const [socket, plugin] = process.argv.slice(2);
const source = fs.readFileSync(plugin, "utf8").replace("export const tools", "globalThis.tools");
const first = new ivm.Isolate();
const { cachedData } = first.compileScriptSync(source, { produceCachedData: true });
first.dispose();

async function call(input) {
  const isolate = new ivm.Isolate({ memoryLimit: 128 });
  try {
    const context = await isolate.createContext();
    const script = await isolate.compileScript(source, { cachedData });
    await script.run(context);
    const line = "return JSON.stringify(tools.order(JSON.parse($0)));";
    return await context.evalClosure(line, [input], { timeout: 30_000, result: { copy: true } });
  } finally {
    isolate.dispose();
  }
}

http
  .createServer(async (request, response) => {
    let input = "";
    for await (const piece of request) input += piece;
    response.end(await call(input));
  })
  .listen(socket);
