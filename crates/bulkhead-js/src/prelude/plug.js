// The plug itself: what its module exports, and what it is given.
'use strict';
{
  const { bulkhead } = globalThis;
  const HANDLERS = ['onSession', 'onMessage'];
  const state = { handlers: null, teardowns: [], context: null };

  const isObject = (value) => value !== null && typeof value === 'object';

  // What the module's default export is, checked; says which handlers there are.
  const adopt = (exported) => {
    const plug = typeof exported === 'function' ? { onSession: exported } : exported;
    if (!isObject(plug)) throw new TypeError('a plug has `export default { onSession, onMessage }`, or one function');
    for (const name of HANDLERS) {
      if (plug[name] !== undefined && typeof plug[name] !== 'function') throw new TypeError(`${name} is not a function`);
    }
    if (HANDLERS.every((name) => plug[name] === undefined)) throw new TypeError('the plug has neither onSession nor onMessage');
    const limits = plug.timeouts ?? {};
    if (!isObject(limits)) throw new TypeError('timeouts is not an object');
    for (const [name, ms] of Object.entries(limits)) {
      if (![...HANDLERS, 'teardown'].includes(name)) throw new TypeError(`timeouts.${name}: there is no such handler`);
      if (!Number.isFinite(ms) || ms <= 0) throw new TypeError(`timeouts.${name} is not a number of milliseconds`);
    }
    state.handlers = plug;
    return { onMessage: plug.onMessage !== undefined, limits };
  };

  const makeContext = ({ plug, config, session, agent, hasHost }) => {
    const controller = new AbortController();
    const host = hasHost ? new bulkhead.Host() : null;
    const log = (...args) => bulkhead.say('info', args);
    for (const level of ['debug', 'info', 'warn', 'error']) log[level] = (...args) => bulkhead.say(level, args);
    return {
      plug,
      config,
      session,
      agent,
      get host() {
        if (host === null) throw new Error('no host comes before this plug');
        return host;
      },
      log,
      signal: controller.signal,
      sleep: (ms, { signal = controller.signal } = {}) => bulkhead.sleep(ms, signal),
      // Runs at teardown; what is added last runs first.
      defer: (teardown) => {
        if (typeof teardown !== 'function') throw new TypeError('defer takes a function');
        state.teardowns.push(teardown);
      },
      [bulkhead.controller]: controller,
    };
  };
  bulkhead.controller = Symbol('controller');

  const text = (value, what) => {
    if (value === undefined || value === null) throw new TypeError(`ctx.agent.${what} is gone`);
    return String(value);
  };

  // What the plug made of the agent.
  const draft = ({ argv, cwd, env, mcp }) => {
    if (!Array.isArray(argv)) throw new TypeError('ctx.agent.argv is not an array');
    if (!isObject(env)) throw new TypeError('ctx.agent.env is not an object');
    const set = Object.entries(env).filter(([, value]) => value !== undefined && value !== null);
    return {
      argv: argv.map((one) => text(one, 'argv')),
      cwd: cwd === undefined || cwd === null ? null : String(cwd),
      env: set.map(([name, value]) => [name, String(value)]),
      mcp: JSON.stringify(mcp ?? []),
    };
  };

  const onSession = async (json, env) => {
    const given = JSON.parse(json);
    state.context = makeContext({ ...given, agent: { ...given.agent, env: Object.fromEntries(env) } });
    const teardown = await state.handlers.onSession?.(state.context);
    if (typeof teardown === 'function') state.teardowns.push(teardown);
    else if (isObject(teardown) && typeof teardown.teardown === 'function') state.teardowns.push(() => teardown.teardown());
    else if (teardown !== undefined && teardown !== null) throw new TypeError('onSession returned something that is no teardown function');
    return draft(state.context.agent);
  };

  const line = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const lines = (value) => (Array.isArray(value) ? value : [value]).map(line);

  // The verdict on a message, as the host takes it.
  const verdict = (returned) => {
    if (returned === undefined || returned === null || returned === true) return { kind: 'pass' };
    if (isObject(returned)) {
      if (returned.drop === true) return { kind: 'drop' };
      if (returned.change !== undefined) return { kind: 'change', lines: [line(returned.change)] };
      if (returned.answer !== undefined) return { kind: 'answer', lines: lines(returned.answer) };
    }
    throw new TypeError('onMessage returns nothing, { change }, { drop: true } or { answer }');
  };

  const onMessage = async (direction, text) => {
    const message = { direction, text };
    let parsed;
    Object.defineProperty(message, 'json', {
      enumerable: true,
      get: () => {
        if (parsed === undefined) {
          try {
            parsed = JSON.parse(text);
          } catch {
            parsed = null;
          }
        }
        return parsed;
      },
    });
    return verdict(await state.handlers.onMessage(state.context, message));
  };

  // Runs them all, the last first; the first error is thrown when all have run.
  const teardown = async (ended) => {
    const errors = [];
    for (const run of state.teardowns.splice(0).reverse()) {
      try {
        await run(JSON.parse(ended));
      } catch (error) {
        errors.push(error);
      }
    }
    for (const error of errors.slice(1)) bulkhead.report(error);
    if (errors.length) throw errors[0];
  };

  const abort = (words) => {
    if (state.context) state.context[bulkhead.controller].abort(new DOMException(words, 'AbortError'));
  };

  // Called once, with the host functions. What it takes away the plug never sees.
  globalThis.start = () => {
    bulkhead.native = globalThis.native;
    delete globalThis.native;
    delete globalThis.start;
    delete globalThis.bulkhead;
    // Not before: V8 sets it in every new context, and a snapshot that has it already cannot be used.
    Error.stackTraceLimit = 20;
    return { adopt, onSession, onMessage, teardown, abort };
  };
}
