// Events, and what stops things: AbortController and AbortSignal.
'use strict';
{
  const { bulkhead } = globalThis;

  class DOMException extends Error {
    #name;
    constructor(message = '', name = 'Error') {
      super(message);
      this.#name = typeof name === 'object' ? (name.name ?? 'Error') : name;
      if (typeof name === 'object' && 'cause' in name) this.cause = name.cause;
    }
    get name() { return this.#name; }
    get code() { return { AbortError: 20, TimeoutError: 23, DataCloneError: 25 }[this.#name] ?? 0; }
  }

  class Event {
    constructor(type, { cancelable = false } = {}) {
      this.type = String(type);
      this.cancelable = Boolean(cancelable);
      this.defaultPrevented = false;
      this.target = null;
      this.stopped = false;
    }
    get currentTarget() { return this.target; }
    preventDefault() { if (this.cancelable) this.defaultPrevented = true; }
    stopPropagation() {}
    stopImmediatePropagation() { this.stopped = true; }
  }

  class CustomEvent extends Event {
    constructor(type, options = {}) {
      super(type, options);
      this.detail = options.detail ?? null;
    }
  }

  class EventTarget {
    #listeners = new Map();
    addEventListener(type, listener, options = {}) {
      if (listener === null || listener === undefined) return;
      const { once = false, signal } = typeof options === 'object' ? options : {};
      if (signal?.aborted) return;
      const list = this.#listeners.get(type) ?? [];
      if (list.some((entry) => entry.listener === listener)) return;
      this.#listeners.set(type, [...list, { listener, once }]);
      signal?.addEventListener('abort', () => this.removeEventListener(type, listener), { once: true });
    }
    removeEventListener(type, listener) {
      const list = this.#listeners.get(type) ?? [];
      this.#listeners.set(type, list.filter((entry) => entry.listener !== listener));
    }
    dispatchEvent(event) {
      event.target = this;
      for (const { listener, once } of this.#listeners.get(event.type) ?? []) {
        if (event.stopped) break;
        if (once) this.removeEventListener(event.type, listener);
        try {
          if (typeof listener === 'function') listener.call(this, event);
          else listener.handleEvent(event);
        } catch (error) {
          bulkhead.report(error);
        }
      }
      return !event.defaultPrevented;
    }
  }

  const own = Symbol('made by this module');

  class AbortSignal extends EventTarget {
    #aborted = false;
    #reason = undefined;
    onabort = null;
    constructor(key) {
      super();
      if (key !== own) throw new TypeError('Illegal constructor');
      this.addEventListener('abort', (event) => this.onabort?.(event));
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    static abort(reason) {
      const signal = new AbortSignal(own);
      signal.#abort(reason);
      return signal;
    }
    static timeout(ms) {
      const signal = new AbortSignal(own);
      setTimeout(() => signal.#abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError')), ms);
      return signal;
    }
    static any(signals) {
      const signal = new AbortSignal(own);
      for (const one of signals) {
        if (one.aborted) {
          signal.#abort(one.reason);
          break;
        }
        one.addEventListener('abort', () => signal.#abort(one.reason), { once: true });
      }
      return signal;
    }
    #abort(reason) {
      if (this.#aborted) return;
      this.#aborted = true;
      this.#reason = reason === undefined ? new DOMException('This operation was aborted', 'AbortError') : reason;
      this.dispatchEvent(new Event('abort'));
    }
    static {
      bulkhead.abort = (signal, reason) => signal.#abort(reason);
    }
  }

  class AbortController {
    signal = new AbortSignal(own);
    abort(reason) { bulkhead.abort(this.signal, reason); }
  }

  // Node's event emitter, as far as streams and watchers use it.
  class EventEmitter {
    #listeners = new Map();
    on(name, listener) {
      this.#listeners.set(name, [...(this.#listeners.get(name) ?? []), { listener, call: listener }]);
      return this;
    }
    once(name, listener) {
      const call = (...args) => {
        this.off(name, listener);
        listener.apply(this, args);
      };
      this.#listeners.set(name, [...(this.#listeners.get(name) ?? []), { listener, call }]);
      return this;
    }
    off(name, listener) {
      const list = this.#listeners.get(name) ?? [];
      this.#listeners.set(name, list.filter((entry) => entry.listener !== listener));
      return this;
    }
    emit(name, ...args) {
      const list = this.#listeners.get(name) ?? [];
      if (name === 'error' && list.length === 0) bulkhead.report(args[0]);
      for (const { call } of list) {
        try {
          call.apply(this, args);
        } catch (error) {
          bulkhead.report(error);
        }
      }
      return list.length > 0;
    }
    listenerCount(name) { return (this.#listeners.get(name) ?? []).length; }
    removeAllListeners(name) {
      if (name === undefined) this.#listeners.clear();
      else this.#listeners.delete(name);
      return this;
    }
  }
  EventEmitter.prototype.addListener = EventEmitter.prototype.on;
  EventEmitter.prototype.removeListener = EventEmitter.prototype.off;

  bulkhead.EventEmitter = EventEmitter;
  bulkhead.abortable = async (signal, promise, cancel) => {
    if (!signal) return promise;
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const stop = () => {
        cancel?.();
        reject(signal.reason);
      };
      signal.addEventListener('abort', stop, { once: true });
      promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
    });
  };
  bulkhead.define({ DOMException, Event, CustomEvent, EventTarget, AbortSignal, AbortController });
}
