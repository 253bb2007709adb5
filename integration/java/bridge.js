// HTTP/2 with prior knowledge in, HTTP/1.1 out: the KCL's Kinesis client speaks nothing else than HTTP/2, plain http
// included, and the fake speaks HTTP/1.1. Usage: node bridge.js TARGET_URL; prints its port; ends with its standard input.
"use strict";
const http = require("http");
const http2 = require("http2");

const target = new URL(process.argv[2]);
const agent = new http.Agent({ keepAlive: true });

function relay(stream, headers) {
  const forwarded = {};
  for (const [name, value] of Object.entries(headers)) {
    if (!name.startsWith(":")) forwarded[name] = value;
  }
  const parts = [];
  stream.on("error", () => {}); // the client has reset the stream: there is nobody to answer
  stream.on("data", (part) => parts.push(part));
  stream.on("end", () => {
    const body = Buffer.concat(parts);
    forwarded.host = target.host;
    forwarded["content-length"] = body.length;
    const request = http.request(
      { agent, host: target.hostname, port: target.port, method: headers[":method"], path: headers[":path"], headers: forwarded },
      (answer) => {
        if (stream.destroyed) return void answer.resume();
        const kept = { ":status": answer.statusCode };
        for (const [name, value] of Object.entries(answer.headers)) {
          if (!["connection", "keep-alive", "transfer-encoding"].includes(name)) kept[name] = value;
        }
        stream.respond(kept);
        answer.pipe(stream);
        answer.on("error", () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
      },
    );
    request.on("error", () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
    stream.on("close", () => request.destroyed || stream.writableFinished || request.destroy());
    request.end(body);
  });
}

const server = http2.createServer();
server.on("stream", relay);
server.on("sessionError", () => {}); // a client that dies mid-frame
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
