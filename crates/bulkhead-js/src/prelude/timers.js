// Timers, microtasks and the clock.
'use strict';
{
  const { bulkhead } = globalThis;
  const running = new Map();
  let next = 1;

  // A timer is a number in every other engine and an object in Node; this is both.
  class Timeout {
    constructor(id) { this.id = id; }
    ref() { return this; }
    unref() { return this; }
    hasRef() { return running.has(this.id); }
    refresh() {
      running.get(this.id)?.restart();
      return this;
    }
    close() { clear(this); }
    [Symbol.toPrimitive]() { return this.id; }
    [Symbol.dispose]() { clear(this); }
  }

  const safely = (callback, args) => {
    try {
      callback(...args);
    } catch (error) {
      bulkhead.report(error);
    }
  };

  const start = (callback, ms, args, repeats) => {
    if (typeof callback !== 'function') throw new TypeError('The "callback" argument must be of type function');
    const delay = Math.min(Math.max(Number(ms) || 0, repeats ? 1 : 0), 2 ** 31 - 1);
    const id = next++;
    const arm = () => {
      const turn = {};
      running.set(id, { turn, restart: () => { bulkhead.native.timerStop(id); arm(); } });
      bulkhead.native.timerStart(id, delay).then((fired) => {
        if (!fired || running.get(id)?.turn !== turn) return;
        if (repeats) arm();
        else running.delete(id);
        safely(callback, args);
      });
    };
    arm();
    return new Timeout(id);
  };

  const clear = (timer) => {
    const id = Number(timer);
    if (running.delete(id)) bulkhead.native.timerStop(id);
  };

  bulkhead.sleep = (ms, signal) => {
    let timer;
    const slept = new Promise((resolve) => { timer = setTimeout(resolve, ms); });
    return bulkhead.abortable(signal, slept, () => clearTimeout(timer));
  };

  bulkhead.define({
    setTimeout: (callback, ms, ...args) => start(callback, ms, args, false),
    setInterval: (callback, ms, ...args) => start(callback, ms, args, true),
    setImmediate: (callback, ...args) => start(callback, 0, args, false),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
    queueMicrotask: (callback) => {
      if (typeof callback !== 'function') throw new TypeError('The "callback" argument must be of type function');
      Promise.resolve().then(() => safely(callback, []));
    },
    performance: { now: () => bulkhead.native.now(), get timeOrigin() { return Date.now() - bulkhead.native.now(); } },
  });
}
