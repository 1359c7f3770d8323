// Print the headers of each gRPC call that comes, as JSON, after the port on which they come.

import { createServer } from "node:http2";

const server = createServer();
server.on("stream", (stream, headers) => {
  console.log(JSON.stringify(headers));
  const trailers = { "content-type": "application/grpc", "grpc-status": "14" };
  stream.respond({ ":status": 200, ...trailers }, { endStream: true });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
