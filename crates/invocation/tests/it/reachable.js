// Walks over everything that code can reach without being given it: from the global object, and from what syntax
// makes. Gives a line for each object: the shortest way to it, and the keys of its own properties.
export function handler() {
    const roots = [
        ["globalThis", globalThis],
        ["(function () {})", function () {}],
        ["(async function () {})", async function () {}],
        ["(function* () {})", function* () {}],
        ["(async function* () {})", async function* () {}],
        ["(() => {})", () => {}],
        ["(class {})", class {}],
        ["(function* () {})()", (function* () {})()],
        ["(async function* () {})()", (async function* () {})()],
        ["(async () => {})()", (async () => {})()],
        ["[][Symbol.iterator]()", [][Symbol.iterator]()],
        ["\"\"[Symbol.iterator]()", ""[Symbol.iterator]()],
        ["new Map()[Symbol.iterator]()", new Map()[Symbol.iterator]()],
        ["new Set()[Symbol.iterator]()", new Set()[Symbol.iterator]()],
        ["\"\".matchAll(/a/g)", "".matchAll(/a/g)],
        ["/a/", /a/],
        ["/(?<a>a)/d.exec(\"a\")", /(?<a>a)/d.exec("a")],
        ["[]", []],
        ["({})", {}],
        ["0n", Object(0n)],
        ["true", Object(true)],
        ["Symbol()", Object(Symbol())],
        ["(function () { return arguments })()", (function () { return arguments })()],
        ["tag``", ((strings) => strings)`a`],
        ["import.meta", import.meta],
        ["new Proxy({}, {})", Proxy.revocable({}, {})],
        ["new Error()", new Error("e", { cause: 1 })],
        ["new AggregateError([])", new AggregateError([])],
        ["Object.getOwnPropertyDescriptor", Object.getOwnPropertyDescriptor({ a: 1 }, "a")],
        ["new Date()", new Date(0)],
        ["new DataView()", new DataView(new ArrayBuffer(1))],
    ];
    try { null.x } catch (error) { roots.push(["(error of the engine)", error]) }
    // What mapping iterators give, and what awaiting an iterable wraps.
    const seen = new Map();
    const queue = [];
    const add = (path, value) => {
        if (value === null || (typeof value !== "object" && typeof value !== "function")) return;
        if (seen.has(value)) return;
        seen.set(value, path);
        queue.push(value);
    };
    for (const [path, value] of roots) add(path, value);
    const show = (key) => typeof key === "symbol" ? `[${key.description}]` : /^[\w$]+$/.test(key) ? key : JSON.stringify(key);
    const lines = [];
    for (let at = 0; at < queue.length; at++) {
        const object = queue[at], path = seen.get(object);
        const keys = [];
        for (const key of Reflect.ownKeys(object)) {
            const descriptor = Reflect.getOwnPropertyDescriptor(object, key);
            const accessor = "get" in descriptor;
            const fixed = descriptor.configurable ? "" : "!";
            keys.push(fixed + (accessor ? `${show(key)}()` : show(key)));
            const below = `${path}${typeof key === "symbol" ? show(key) : `.${show(key)}`}`;
            if (accessor) {
                add(`get ${below}`, descriptor.get);
                add(`set ${below}`, descriptor.set);
            } else {
                add(below, descriptor.value);
            }
        }
        add(`${path}.__proto__`, Reflect.getPrototypeOf(object));
        const kind = typeof object === "function" ? "function " : "";
        lines.push(`${kind}${path.replace(/^globalThis\./, "")}: ${keys.join(" ")}`);
    }
    return lines;
}
