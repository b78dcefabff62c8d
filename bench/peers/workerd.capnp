# Serves plugin calls with workerd: a new dynamic worker for each, in one process. SOCKET is replaced by the benchmark.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [(name = "main", worker = .main)],
  sockets = [(name = "http", address = "unix:SOCKET", http = (), service = "main")],
);

const main :Workerd.Worker = (
  modules = [
    (name = "worker.js", esModule = embed "workerd.js"),
    (name = "plugin.txt", text = embed "plugin.js"),
  ],
  compatibilityDate = "2026-01-01",
  bindings = [(name = "LOADER", workerLoader = (id = "plugins"))],
);
