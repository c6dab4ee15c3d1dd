// @fluent-org/logger for the tests: sends numbered events in one mode and waits until each is acknowledged.
// The single argument is JSON: eventMode, socket, security, count, tag, mark, ca, cert, key; `again`: with its own retries;
// `defaults`: as it comes.
"use strict";
const fs = require("fs");
const { FluentClient } = require("@fluent-org/logger");

const order = JSON.parse(process.argv[2]);
// By default it closes a connection on which nothing happened for 3 s, though acknowledgements are to come yet.
const socket = { host: "127.0.0.1", port: order.port, ...(order.defaults ? {} : { timeout: 60000 }) };
if (order.ca) {
  socket.tls = { ca: fs.readFileSync(order.ca), servername: "localhost" };
  if (order.cert) {
    Object.assign(socket.tls, { cert: fs.readFileSync(order.cert), key: fs.readFileSync(order.key) });
  }
}

async function main() {
  const client = new FluentClient(order.tag, {
    eventMode: order.eventMode,
    socket,
    security: order.security,
    ack: order.defaults ? {} : { ackTimeout: order.ackTimeout || 60000 }, // its default of 500 ms is shorter than Kafka may take
    eventRetry: order.again ? {} : undefined,
    flushInterval: 20,
    sendQueueIntervalFlushLimit: { length: 500 },
  });
  const sent = [];
  for (let n = 0; n < order.count; n++) {
    sent.push(client.emit({ mark: order.mark, n, text: `line ${n} – ü` }));
    if (sent.length === 2000) {
      await Promise.all(sent.splice(0)); // rejected: an acknowledgement did not come
    }
  }
  await Promise.all(sent);
  await client.disconnect();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(String(error));
    process.exit(1);
  },
);
