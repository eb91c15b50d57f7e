// One room, everybody in it, as Socket.IO's documentation builds it: `ws` engine, WebSockets alone, no compression.
//
// Says on standard output where it listens. Ends with its standard input, so that nothing is left running.

import { createServer } from "node:http";
import { Server } from "socket.io";

const http = createServer();
const io = new Server(http, { transports: ["websocket"], perMessageDeflate: false, serveClient: false });

io.on("connection", (socket) => {
  socket.on("join", (room, done) => {
    socket.join(room);
    done();
  });
  socket.on("publish", (room, payload) => io.to(room).emit("message", payload));
});

// The backlog that nodes have, too.
http.listen({ host: "127.0.0.1", port: 0, backlog: 1024 }, () => console.log(http.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
