// Text and bytes: TextEncoder and TextDecoder, base64, and Buffer.
'use strict';
{
  const { bulkhead } = globalThis;

  const bytesOf = (data) => {
    if (data instanceof Uint8Array) return data;
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    throw Object.assign(new TypeError(`The "data" argument must be text or bytes, not ${bulkhead.inspect(data, 1, [])}`), { code: 'ERR_INVALID_ARG_TYPE' });
  };

  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') { return bulkhead.native.utf8Encode(String(text)); }
    encodeInto(text, target) {
      let read = 0;
      let written = 0;
      for (const character of String(text)) {
        const bytes = this.encode(character);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        read += character.length;
      }
      return { read, written };
    }
  }

  const LABELS = { 'utf-8': 'utf-8', utf8: 'utf-8', latin1: 'windows-1252', 'iso-8859-1': 'windows-1252', ascii: 'windows-1252', 'utf-16le': 'utf-16le', 'utf-16': 'utf-16le' };

  class TextDecoder {
    #rest = new Uint8Array(0);
    #started = false;
    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      const encoding = LABELS[String(label).trim().toLowerCase()];
      if (encoding === undefined) throw new RangeError(`The "${label}" encoding is not supported`);
      Object.defineProperties(this, { encoding: { value: encoding }, fatal: { value: fatal }, ignoreBOM: { value: ignoreBOM } });
    }
    decode(data = new Uint8Array(0), { stream = false } = {}) {
      let bytes = bytesOf(data);
      if (this.#rest.length) {
        const joined = new Uint8Array(this.#rest.length + bytes.length);
        joined.set(this.#rest);
        joined.set(bytes, this.#rest.length);
        bytes = joined;
      }
      const split = stream ? bytes.length - this.#unfinished(bytes) : bytes.length;
      this.#rest = bytes.slice(split);
      let text = this.#text(bytes.subarray(0, split));
      if (!this.#started && !this.ignoreBOM && text.startsWith('\ufeff')) text = text.slice(1);
      this.#started = stream && (this.#started || split > 0);
      return text;
    }
    // How many bytes at the end are the beginning of a character.
    #unfinished(bytes) {
      if (this.encoding === 'utf-16le') return bytes.length % 2;
      if (this.encoding !== 'utf-8') return 0;
      for (let back = 1; back <= Math.min(3, bytes.length); back++) {
        const byte = bytes[bytes.length - back];
        if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) ? back : 0;
        if (byte < 0x80) return 0;
      }
      return 0;
    }
    #text(bytes) {
      if (this.encoding === 'utf-8') {
        const text = bulkhead.native.utf8Decode(bytes, this.fatal);
        if (text === null) throw new TypeError('The encoded data was not valid for encoding utf-8');
        return text;
      }
      return Buffer.from(bytes).toString(this.encoding === 'utf-16le' ? 'utf16le' : 'latin1');
    }
  }

  const ENCODINGS = { utf8: 'utf8', 'utf-8': 'utf8', hex: 'hex', base64: 'base64', base64url: 'base64url', latin1: 'latin1', binary: 'latin1', ascii: 'ascii', utf16le: 'utf16le', 'utf-16le': 'utf16le', ucs2: 'utf16le', 'ucs-2': 'utf16le' };

  const encodingOf = (name) => {
    const encoding = ENCODINGS[String(name ?? 'utf8').toLowerCase()];
    if (encoding !== undefined) return encoding;
    throw Object.assign(new TypeError(`Unknown encoding: ${name}`), { code: 'ERR_UNKNOWN_ENCODING' });
  };

  const CHUNK = 8192;
  const fromCodes = (codes) => {
    let text = '';
    for (let at = 0; at < codes.length; at += CHUNK) text += String.fromCharCode.apply(null, codes.subarray(at, at + CHUNK));
    return text;
  };

  const encode = (text, encoding) => {
    switch (encodingOf(encoding)) {
      case 'utf8': return bulkhead.native.utf8Encode(text);
      case 'hex': {
        const digits = /^(?:[0-9a-fA-F]{2})*/.exec(text)[0];
        return Uint8Array.from({ length: digits.length / 2 }, (_, i) => Number.parseInt(digits.slice(2 * i, 2 * i + 2), 16));
      }
      case 'base64':
      case 'base64url': return bulkhead.native.base64Decode(text);
      case 'utf16le': {
        const bytes = new Uint8Array(text.length * 2);
        for (let i = 0; i < text.length; i++) {
          const code = text.charCodeAt(i);
          bytes[2 * i] = code & 0xff;
          bytes[2 * i + 1] = code >> 8;
        }
        return bytes;
      }
      default: return Uint8Array.from({ length: text.length }, (_, i) => text.charCodeAt(i) & 0xff);
    }
  };

  class Buffer extends Uint8Array {
    static poolSize = 8192;
    static from(data, encodingOrOffset, length) {
      if (typeof data === 'string') return Buffer.view(encode(data, encodingOrOffset));
      if (data instanceof ArrayBuffer) return new Buffer(data, encodingOrOffset ?? 0, length);
      if (data?.type === 'Buffer' && Array.isArray(data.data)) return Buffer.from(data.data);
      if (data === null || typeof data !== 'object') throw new TypeError('Buffer.from takes a string, a buffer or an array');
      const list = ArrayBuffer.isView(data) || Array.isArray(data) ? data : Array.from(data);
      const buffer = new Buffer(list.length);
      buffer.set(list);
      return buffer;
    }
    // The same memory as a Buffer.
    static view(bytes) {
      return new Buffer(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    }
    static alloc(size, fill, encoding) {
      const buffer = new Buffer(size);
      return fill === undefined ? buffer : buffer.fill(fill, encoding);
    }
    static allocUnsafe(size) { return new Buffer(size); }
    static allocUnsafeSlow(size) { return new Buffer(size); }
    static isBuffer(value) { return value instanceof Buffer; }
    static isEncoding(name) { return String(name).toLowerCase() in ENCODINGS; }
    static byteLength(data, encoding) { return typeof data === 'string' ? encode(data, encoding).length : data.byteLength; }
    static concat(list, total = list.reduce((sum, one) => sum + one.length, 0)) {
      const buffer = Buffer.alloc(total);
      let at = 0;
      for (const one of list) {
        if (at >= total) break;
        buffer.set(one.subarray(0, total - at), at);
        at += one.length;
      }
      return buffer;
    }
    static compare(a, b) {
      for (let i = 0; i < Math.min(a.length, b.length); i++) {
        if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
      }
      return Math.sign(a.length - b.length);
    }
    toString(encoding, start = 0, end = this.length) {
      const bytes = this.subarray(start, end);
      switch (encodingOf(encoding)) {
        case 'utf8': return bulkhead.native.utf8Decode(bytes, false);
        case 'hex': return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
        case 'base64': return bulkhead.native.base64Encode(bytes, false);
        case 'base64url': return bulkhead.native.base64Encode(bytes, true);
        case 'ascii': return fromCodes(bytes.map((byte) => byte & 0x7f));
        case 'utf16le': return fromCodes(Uint16Array.from({ length: bytes.length >> 1 }, (_, i) => bytes[2 * i] | (bytes[2 * i + 1] << 8)));
        default: return fromCodes(bytes);
      }
    }
    toJSON() { return { type: 'Buffer', data: Array.from(this) }; }
    equals(other) { return Buffer.compare(this, other) === 0; }
    compare(other) { return Buffer.compare(this, other); }
    // As in Node, a slice shares the memory.
    slice(start, end) { return this.subarray(start, end); }
    write(text, offset = 0, length = this.length - offset, encoding = 'utf8') {
      if (typeof offset === 'string') return this.write(text, 0, this.length, offset);
      if (typeof length === 'string') return this.write(text, offset, this.length - offset, length);
      const bytes = encode(text, encoding).subarray(0, Math.min(length, this.length - offset));
      this.set(bytes, offset);
      return bytes.length;
    }
    fill(value, offset, end, encoding) {
      if (typeof value !== 'string') return super.fill(value, offset, end);
      const bytes = encode(value, typeof offset === 'string' ? offset : encoding);
      const from = typeof offset === 'number' ? offset : 0;
      for (let i = from; i < (end ?? this.length); i++) this[i] = bytes.length ? bytes[(i - from) % bytes.length] : 0;
      return this;
    }
    #needle(value, encoding) {
      if (typeof value === 'number') return Uint8Array.of(value);
      return typeof value === 'string' ? encode(value, encoding) : value;
    }
    indexOf(value, from = 0, encoding = 'utf8') {
      const needle = this.#needle(value, encoding);
      for (let at = from < 0 ? Math.max(0, this.length + from) : from; at + needle.length <= this.length; at++) {
        if (needle.every((byte, i) => this[at + i] === byte)) return at;
      }
      return -1;
    }
    lastIndexOf(value, from = this.length, encoding = 'utf8') {
      const needle = this.#needle(value, encoding);
      for (let at = Math.min(from, this.length - needle.length); at >= 0; at--) {
        if (needle.every((byte, i) => this[at + i] === byte)) return at;
      }
      return -1;
    }
    includes(value, from, encoding) { return this.indexOf(value, from, encoding) !== -1; }
    copy(target, at = 0, start = 0, end = this.length) {
      const part = this.subarray(start, Math.min(end, start + target.length - at));
      target.set(part, at);
      return part.length;
    }
  }
  for (const [name, method] of Object.entries({
    UInt8: 'Uint8', Int8: 'Int8', UInt16LE: 'Uint16', UInt16BE: 'Uint16', Int16LE: 'Int16', Int16BE: 'Int16',
    UInt32LE: 'Uint32', UInt32BE: 'Uint32', Int32LE: 'Int32', Int32BE: 'Int32', FloatLE: 'Float32', FloatBE: 'Float32',
    DoubleLE: 'Float64', DoubleBE: 'Float64', BigInt64LE: 'BigInt64', BigInt64BE: 'BigInt64', BigUInt64LE: 'BigUint64', BigUInt64BE: 'BigUint64',
  })) {
    const little = name.endsWith('LE');
    const size = Number(/\d+$/.exec(method)[0]) / 8;
    const view = (buffer) => new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
    Buffer.prototype[`read${name}`] = function read(offset = 0) { return view(this)[`get${method}`](offset, little); };
    Buffer.prototype[`write${name}`] = function write(value, offset = 0) {
      view(this)[`set${method}`](offset, value, little);
      return offset + size;
    };
  }

  // Bytes with a type. A part may also be something that gives its bytes later: `{ size, bytes }`.
  class Blob {
    #parts;
    constructor(parts = [], { type = '' } = {}) {
      this.#parts = parts.map((part) => {
        if (part instanceof Blob || typeof part?.bytes === 'function') return part;
        const bytes = typeof part === 'string' ? encode(part) : Uint8Array.from(bytesOf(part));
        return { size: bytes.length, bytes: async () => bytes };
      });
      this.type = String(type).toLowerCase();
    }
    get size() { return this.#parts.reduce((sum, part) => sum + part.size, 0); }
    async bytes() { return new Uint8Array(Buffer.concat(await Promise.all(this.#parts.map((part) => part.bytes())))); }
    async arrayBuffer() { return (await this.bytes()).buffer; }
    async text() { return new TextDecoder().decode(await this.bytes()); }
    slice(from = 0, to = this.size, type = '') {
      const size = this.size;
      const [start, end] = [from, to].map((at) => Math.max(0, Math.min(at < 0 ? size + at : at, size)));
      return new Blob([{ size: Math.max(0, end - start), bytes: async () => (await this.bytes()).slice(start, end) }], { type });
    }
    stream() {
      const blob = this;
      return { async *[Symbol.asyncIterator]() { yield await blob.bytes(); } };
    }
  }

  // What a plug hands over to be written: text, or bytes of any kind.
  bulkhead.toBytes = (data, encoding) => (typeof data === 'string' ? encode(data, encoding) : bytesOf(data));
  bulkhead.encodingOf = encodingOf;

  const base64 = (text) => {
    const invalid = () => new DOMException('The string to be decoded is not correctly encoded.', 'InvalidCharacterError');
    const clean = String(text).replace(/[\t\n\f\r ]/g, '');
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(clean)) throw invalid();
    return clean;
  };
  bulkhead.define({
    TextEncoder,
    TextDecoder,
    Buffer,
    Blob,
    btoa: (text) => {
      if (/[^\0-\xff]/.test(text)) throw new DOMException('Invalid character', 'InvalidCharacterError');
      return Buffer.from(String(text), 'latin1').toString('base64');
    },
    atob: (text) => Buffer.from(base64(text), 'base64').toString('latin1'),
  });
}
